"""Generates web logs of a busy shop: a few popular pages, many rare ones, mostly fast responses, some errors.

Everything is derived from one seed. Some lines are sent twice with the same id, as when a log shipper retries: the
dedup pipeline removes these.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

PAGES = [
    "/", "/search", "/cart", "/checkout", "/login", "/account", "/help",
    *(f"/products/{number}" for number in range(1, 200)),
]  # fmt: skip
AGENTS = [
    "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0",
    "Mozilla/5.0 (Macintosh) Safari/19.0",
    "Mozilla/5.0 (Windows NT 10.0) Chrome/142.0",
    "curl/8.14.1",
    "Googlebot/2.1",
]
USERS = ["-", "-", "-", *(f"user{number}" for number in range(1, 500))]
DUPLICATES = 0.05  # the share of lines that are sent twice


@dataclass(frozen=True)
class Line:
    id: str
    host: str
    text: str


class WebLogs:
    def __init__(self, seed: int = 7) -> None:
        self._chance = random.Random(seed)
        self._popularity = [1 / (rank + 1) for rank in range(len(PAGES))]
        self._count = 0

    def lines(self, count: int, now_s: float) -> Iterator[Line]:
        """This many lines with the current time, duplicates included."""
        chance = self._chance
        moment = datetime.fromtimestamp(now_s, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000")
        for path in chance.choices(PAGES, self._popularity, k=count):
            self._count += 1
            host = f"10.{chance.randrange(4)}.{chance.randrange(256)}.{chance.randrange(1, 255)}"
            status = self._status(path)
            seconds = chance.lognormvariate(-3.0, 0.8) * (8 if status >= 500 else 1)
            request = f"{'POST' if path in ('/cart', '/checkout', '/login') else 'GET'} {path} HTTP/1.1"
            text = (
                f'{host} - {chance.choice(USERS)} [{moment}] "{request}" {status} {chance.randrange(200, 40_000)} '
                f'"-" "{chance.choice(AGENTS)}" {seconds:.3f}'
            )
            line = Line(f"{self._count:x}", host, text)
            yield line
            if chance.random() < DUPLICATES:
                yield line

    def _status(self, path: str) -> int:
        drawn = self._chance.random()
        if drawn < (0.06 if path == "/checkout" else 0.005):
            return 500
        if drawn < 0.03:
            return 404
        return 302 if path == "/login" else 200
