"""Finding the records of an opened batch that have a header with one of a few names, without an object per record.

Called by log/delay_orders.py for every batch on a topic with delays: the usual batch has no such record, and the answer
is an empty list. The compiled twin does the work if it could be built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.wire._record_headers_py import Marked

if TYPE_CHECKING:
    from headrace.wire import _record_headers_py as twin
else:
    try:
        from headrace.wire import _record_headers as twin
    except ImportError:
        from headrace.wire import _record_headers_py as twin

__all__ = ["Marked", "marked_records"]

marked_records = twin.marked_records
