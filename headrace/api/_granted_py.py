"""Bytes that keep a grant (api/reply_budget.py), in pure Python: the twin of _granted.pyx.

It serves where there is no C compiler, and costs one copy more. Called by reply_budget.py, which picks one of the two.
Invariant: the grant lives for as long as there is a view of the bytes, or a slice of such a view.
"""

from __future__ import annotations

from headrace.wire.batches import Buffer


class GrantedBytes(bytearray):
    __slots__ = ("grant",)

    grant: object


def granted(data: Buffer, grant: object) -> memoryview:
    """These bytes, as a view; the grant lives as long as anybody has a view of them."""
    kept = GrantedBytes(data)
    kept.grant = grant
    return memoryview(kept).toreadonly()
