"""DescribeCluster, v0 to v2: the brokers and the controller, without any topic."""

from __future__ import annotations

from headrace.api.authorized_operations import ALL_OF_THE_CLUSTER, NOT_ASKED_FOR
from headrace.api.contract import Request
from headrace.api.metadata import AddressOf
from headrace.cluster.view import ClusterView
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_BROKERS, _CONTROLLERS = 1, 2  # the kinds of endpoint that can be asked for, from v1 on


class DescribeCluster:
    def __init__(self, view: ClusterView, address_of: AddressOf) -> None:
        self._view = view
        self._address_of = address_of

    def __call__(self, request: Request) -> Message:
        image = self._view.image
        wanted = request.body.endpoint_type
        if wanted == _CONTROLLERS:
            why = "this is a broker; headrace has no separate controllers to ask"
            return Message(error_code=ErrorCode.mismatched_endpoint_type, error_message=why)
        if wanted != _BROKERS:
            why = f"there is no endpoint type {wanted}"
            return Message(error_code=ErrorCode.unsupported_endpoint_type, error_message=why)
        brokers = []
        for broker in image.brokers.values():
            host, port = self._address_of(request.peer, broker)
            brokers.append(Message(broker_id=broker.id, host=host, port=port, rack=broker.rack))
        return Message(
            cluster_id=image.cluster_id,
            controller_id=image.controller_for_clients,
            brokers=brokers,
            cluster_authorized_operations=(
                ALL_OF_THE_CLUSTER if request.body.include_cluster_authorized_operations else NOT_ASKED_FOR
            ),
        )
