"""ApiVersions, v0 to v4: which APIs and versions this broker serves.

An unknown version is answered in the format of version 0, with UNSUPPORTED_VERSION and the list (KIP-511). Since v3 the
request has the client's name, which is validated as in Kafka, and the response has the finalized feature levels, by
which clients choose a protocol: `transaction.version` 2 is KIP-890. Before v4 a minimum level of 0 is sent as 1, since
older clients reject 0 (KIP-1022).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from headrace.api.contract import Request
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_CLIENT_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


class ApiVersions:
    def __init__(self, served: Iterable[tuple[int, int, int]], features: Mapping[str, int]) -> None:
        """`served`: API key, lowest and highest version of each API in the table. `features`: the highest level
        of each, which is also the finalized one."""
        self._features = features
        self._keys = [Message(api_key=key, min_version=low, max_version=high) for key, low, high in served]

    def __call__(self, request: Request) -> Message:
        body = request.body
        if request.version >= 3 and not (
            _CLIENT_NAME.fullmatch(body.client_software_name) and _CLIENT_NAME.fullmatch(body.client_software_version)
        ):
            return Message(error_code=ErrorCode.invalid_request)
        lowest = 0 if request.version >= 4 else 1
        levels = self._features.items()
        return Message(
            api_keys=self._keys,
            supported_features=[Message(name=name, min_version=lowest, max_version=level) for name, level in levels],
            finalized_features_epoch=0,
            finalized_features=[
                Message(name=name, min_version_level=level, max_version_level=level) for name, level in levels
            ],
        )

    def refuse_version(self) -> Message:
        return Message(error_code=ErrorCode.unsupported_version, api_keys=self._keys)
