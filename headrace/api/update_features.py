"""UpdateFeatures, v0 to v2 (KIP-584): changes the levels of features. Those of headrace are fixed.

A level that is already finalized is accepted; any other is rejected, and with it the whole request, as in Kafka.
"""

from __future__ import annotations

from collections.abc import Mapping

from headrace.api.contract import Request
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message


class UpdateFeatures:
    def __init__(self, levels: Mapping[str, int]) -> None:
        self._levels = levels

    def __call__(self, request: Request) -> Message:
        updates = request.body.feature_updates
        wrong = [why for update in updates if (why := self._problem(update.feature, update.max_version_level))]
        if wrong:
            return Message(error_code=ErrorCode.invalid_update_version, error_message="; ".join(wrong), results=[])
        return Message(results=[Message(feature=update.feature) for update in updates])

    def _problem(self, feature: str, level: int) -> str | None:
        known = self._levels.get(feature)
        if known is None:
            return f"feature {feature!r} is unknown; known features: {', '.join(sorted(self._levels))}"
        if level != known:
            return f"{feature} is fixed at level {known} and cannot be changed to {level}"
        return None
