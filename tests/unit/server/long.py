"""What a dispatcher needs for long work, on a simulated thread."""

from __future__ import annotations

from headrace.api.reply_budget import ReplyBudget
from headrace.server.long_work import LongWork
from headrace.server.unfinished import UNLIMITED, UnfinishedRequests
from sim.computing import SimComputing


def long_work(unfinished: UnfinishedRequests | None = None, replies: ReplyBudget | None = None) -> LongWork:
    return LongWork(SimComputing(), unfinished or UnfinishedRequests(UNLIMITED), replies or ReplyBudget(UNLIMITED))
