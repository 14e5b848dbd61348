"""The secret by which a broker recognizes requests that other brokers of its cluster pass on to it.

A broker makes one at each registration and stores it with its registration, where only brokers read. It is never part
of an answer, and its `repr` does not show it, so that no log line or error can.
"""

from __future__ import annotations

import hmac

from msgspec import Struct


class BrokerToken(Struct, frozen=True):
    text: str = ""  # of a broker that registered without one, which nothing matches

    def matches(self, shown: str) -> bool:
        """Takes as long for any wrong token of the same length."""
        return bool(self.text) and hmac.compare_digest(self.text.encode(), shown.encode())

    def __repr__(self) -> str:
        return "BrokerToken(hidden)"


NO_TOKEN = BrokerToken()
