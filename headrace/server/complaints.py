"""What the broker writes to its log because of what strangers do: at most one line per address and minute.

Owned by the listener, used by it and its connections. The first complaint about an address is written at once; those of
the minute after it are counted, and the number is written when that minute is over. Only so many addresses are
remembered; all others share one line a minute. So the log grows by a bounded number of lines whatever is sent, and no
line says what it should not: control characters are replaced, and the text is cut.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

PERIOD_S = 60.0
MOST_ADDRESSES = 128
_MOST_CHARACTERS = 400
_OTHERS = "other addresses"


class _Account:
    """What was said about one address in the current period."""

    __slots__ = ("last", "more", "until_s")

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s
        self.more = 0
        self.last = ""


class Complaints:
    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._accounts: dict[str, _Account] = {}  # in the order of their beginnings, so also of their ends

    def note(self, address: str, text: str, error: BaseException | None = None) -> None:
        """Something about `address`; an `error` of ours is written with its traceback."""
        now_s = self._monotonic()
        self.tell(now_s)
        account = self._accounts.get(address)
        if account is None and len(self._accounts) >= MOST_ADDRESSES:
            address = _OTHERS
            account = self._accounts.get(address)
        if account is None:
            self._accounts[address] = _Account(now_s + PERIOD_S)
            level = logging.WARNING if error is None else logging.ERROR
            logger.log(level, "%s", _clean(text), exc_info=error)
        else:
            account.more += 1
            account.last = text

    def tell(self, now_s: float) -> None:
        """Write the counts of the periods that are over, and forget them."""
        while self._accounts:
            address, account = next(iter(self._accounts.items()))
            if account.until_s > now_s:
                return
            del self._accounts[address]
            if account.more:
                logger.warning(
                    "%s: %d more of these within a minute, the last: %s", address, account.more, _clean(account.last)
                )


def _clean(text: str) -> str:
    if len(text) > _MOST_CHARACTERS:
        text = f"{text[:_MOST_CHARACTERS]}…"
    return "".join(letter if letter.isprintable() else "?" for letter in text)
