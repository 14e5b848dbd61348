"""The settings of a share group, as the leaders of partitions obey them.

`TermsOf` is plugged in by the broker, which knows the settings in force.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from headrace.model.group_config import EARLIEST, ShareGroupConfig
from headrace.replicas.share.acquisition import Limits

_LEAST_TOLD_MS = 1000  # clients fail if they are told less


class ShareTerms(Struct, frozen=True):
    limits: Limits
    read_committed: bool
    renew: bool
    from_start: bool
    """A new share partition begins with the oldest record; otherwise with one of this age, or at the end."""
    from_age_ms: int | None
    told_lock_ms: int


TermsOf = Callable[[str], ShareTerms]


def terms_of(config: ShareGroupConfig) -> ShareTerms:
    return ShareTerms(
        Limits(config.share_record_lock_ms / 1000, config.share_delivery_count_limit, config.share_max_record_locks),
        config.share_read_committed,
        config.share_renew,
        config.share_auto_offset_reset == EARLIEST,
        config.share_reset_ms,
        max(_LEAST_TOLD_MS, config.share_record_lock_ms),
    )
