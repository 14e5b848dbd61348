"""DescribeCluster, v0 to v2: the brokers and the controller, without topics."""

from __future__ import annotations

from headrace.api.authorized_operations import ALL_OF_THE_CLUSTER, NOT_ASKED_FOR
from headrace.api.contract import Request
from headrace.api.known_brokers import KnownBrokers
from headrace.cluster.view import ClusterView
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message

_BROKERS, _CONTROLLERS = 1, 2  # the endpoint types of the request, since v1


class DescribeCluster:
    def __init__(self, view: ClusterView, brokers: KnownBrokers) -> None:
        self._view = view
        self._brokers = brokers

    def __call__(self, request: Request) -> Message:
        wanted = request.body.endpoint_type
        if wanted == _CONTROLLERS:
            why = "this is a broker; headrace has no separate controller nodes"
            return Message(error_code=ErrorCode.mismatched_endpoint_type, error_message=why)
        if wanted != _BROKERS:
            why = f"endpoint type {wanted} is unknown"
            return Message(error_code=ErrorCode.unsupported_endpoint_type, error_message=why)
        return Message(
            cluster_id=self._view.image.cluster_id,
            controller_id=self._brokers.controller_id,
            brokers=[
                Message(broker_id=broker.id, host=broker.host, port=broker.port, rack=broker.rack)
                for broker in self._brokers.told_to(request.peer)
            ],
            cluster_authorized_operations=(
                ALL_OF_THE_CLUSTER if request.body.include_cluster_authorized_operations else NOT_ASKED_FOR
            ),
        )
