"""The settings of a share group, as the leaders of partitions obey them.

`TermsOf` is plugged in by the broker, which knows the settings in force. Here are Kafka's defaults, and where a share
partition starts that nobody has started yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from headrace.replicas.share.acquisition import Limits

LATEST, EARLIEST, BY_DURATION = "latest", "earliest", "by_duration:"
_LEAST_TOLD_MS = 1000
_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE)


class ShareTerms(Struct, frozen=True):
    lock_ms: int = 30_000
    delivery_limit: int = 5
    max_locks: int = 2000
    auto_offset_reset: str = LATEST
    read_committed: bool = False
    renew: bool = True

    @property
    def limits(self) -> Limits:
        return Limits(self.lock_ms / 1000, self.delivery_limit, self.max_locks)

    @property
    def told_lock_ms(self) -> int:
        """Clients fail if they are told less."""
        return max(_LEAST_TOLD_MS, self.lock_ms)


TermsOf = Callable[[str], ShareTerms]


def default_terms(group: str) -> ShareTerms:
    return ShareTerms()


def reset_age_ms(reset: str) -> int | None:
    """How far back `by_duration:` reaches; None for what is not a duration."""
    match = _DURATION.fullmatch(reset.removeprefix(BY_DURATION)) if reset.startswith(BY_DURATION) else None
    if match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000)
