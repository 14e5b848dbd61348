"""ListConfigResources, v0 to v1 (KIP-1142): the resources that can have settings; of groups, those that have some.

v0 lists only client metrics subscriptions, of which headrace has none. From v1 on an empty list means every type.
"""

from __future__ import annotations

from headrace.api.contract import Request, Steps
from headrace.api.describe_configs import ResourceType
from headrace.api.pieces import Pace
from headrace.cluster.view import ClusterView
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message


class ListConfigResources:
    def __init__(self, view: ClusterView) -> None:
        self._view = view

    def __call__(self, request: Request) -> Steps[Message]:
        if request.version == 0:
            return Message(config_resources=[])
        image = self._view.image
        wanted = set(request.body.resource_types) or set(ResourceType)
        if not wanted <= set(ResourceType):
            return Message(error_code=ErrorCode.unsupported_version, config_resources=[])
        names: dict[int, list[str]] = {
            ResourceType.TOPIC: sorted(image.topics),
            ResourceType.BROKER: [str(broker) for broker in sorted(image.brokers)],
            ResourceType.GROUP: sorted(image.group_settings),
        }
        resources, pace = list[Message](), Pace()
        for kind in sorted(wanted):
            for name in names.get(kind, ()):
                resources.append(Message(resource_name=name, resource_type=kind))
                if pace.is_over():
                    yield
        return Message(config_resources=resources)
