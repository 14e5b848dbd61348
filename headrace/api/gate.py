"""The gate: what callers are allowed. Both paths of Produce and both of Fetch ask here, and have no rule of their own.

An express lane decides whether it applies, that is, whether the answer is known at once. What is allowed it asks here,
like the full path; when the gate refuses, the lane leaves the request to the full path, which is refused by the same
method and answers in the words of its API. A rule that refuses raises KafkaError with Kafka's code.

An authorizer answers whether a caller may do an operation on a resource. Without one, which is how a broker runs today,
everybody may do everything, and no request pays for a question. With one, Produce and Fetch ask for each topic that a
request names. For every other API the dispatcher asks before either path, without looking into the request: the caller
must be allowed each operation that the API's entry in `table.py` lists, on every resource of that type, or the
connection is closed. So an API whose handler does not yet ask by name grants too little rather than too much.

Made by the broker, used by the table, the dispatcher and the handlers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from headrace.api.contract import Caller
from headrace.api.operations import CLUSTER_NAME, EVERY, Needs, Operation, Resource
from headrace.model.image import INTERNAL_TOPICS
from headrace.replicas.partition import Partition
from headrace.wire.errors import ErrorCode, KafkaError

ACKS_ALL = -1
_ACKS = (ACKS_ALL, 0, 1)


class Authorizer(Protocol):
    def __call__(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool: ...


Guard = Callable[[Caller], bool]


class Gate:
    def __init__(self, authorizer: Authorizer | None = None) -> None:
        self._authorizer = authorizer
        self.asks = authorizer is not None  # False: every caller is allowed everything

    def allows(self, caller: Caller, operation: Operation, resource: Resource, name: str) -> bool:
        return self._authorizer is None or self._authorizer(caller, operation, resource, name)

    def guard(self, needs: Needs) -> Guard | None:
        """What the dispatcher asks of a request whose handler does not ask by name. None: nothing is to be asked."""
        if not self.asks or not needs:
            return None

        def guard(caller: Caller) -> bool:
            return all(self.allows(caller, need.operation, need.resource, _every(need.resource)) for need in needs)

        return guard

    # --- writing ----------------------------------------------------------------------------------------------------

    def check_acks(self, acks: int, *, transactional: bool = False) -> None:
        if acks not in _ACKS:
            raise KafkaError(ErrorCode.invalid_required_acks, f"acks is {acks}, not -1, 0 or 1")
        if transactional and acks == 0:
            raise KafkaError(ErrorCode.invalid_required_acks, "a transactional producer must wait for the reply")

    def check_writer(self, caller: Caller, topic: str) -> None:
        """Whether the caller may write to the topic. Called before anything is said of the topic's partitions."""
        if self.asks and not self.allows(caller, Operation.WRITE, Resource.TOPIC, topic):
            raise _topic_refused(caller, Operation.WRITE, topic)
        if topic in INTERNAL_TOPICS:
            raise KafkaError(ErrorCode.invalid_topic_exception, f"{topic} is written by the broker alone")

    def check_transactional_id(self, caller: Caller, transactional_id: str) -> None:
        if self.asks and not self.allows(caller, Operation.WRITE, Resource.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(
                ErrorCode.transactional_id_authorization_failed,
                f"{caller.principal} has no WRITE access to transactional id {transactional_id}",
            )

    def check_in_sync(self, acks: int, partition: Partition, records: memoryview) -> None:
        """With acks=all, the partition must have the in-sync replicas that its topic asks for."""
        if acks == ACKS_ALL:
            partition.check_enough_replicas(records)

    # --- reading ----------------------------------------------------------------------------------------------------

    def check_reader(self, caller: Caller, topic: str) -> None:
        """Whether the caller may read from the topic as a consumer."""
        if self.asks and not self.allows(caller, Operation.READ, Resource.TOPIC, topic):
            raise _topic_refused(caller, Operation.READ, topic)

    def check_replica(self, caller: Caller, topic: str) -> None:
        """Whether the caller may read from the topic as a replica of it, that is, act for the cluster."""
        if self.asks and not self.allows(caller, Operation.CLUSTER_ACTION, Resource.CLUSTER, CLUSTER_NAME):
            raise _topic_refused(caller, Operation.READ, topic)


def _every(resource: Resource) -> str:
    return CLUSTER_NAME if resource is Resource.CLUSTER else EVERY


def _topic_refused(caller: Caller, operation: Operation, topic: str) -> KafkaError:
    return KafkaError(
        ErrorCode.topic_authorization_failed, f"{caller.principal} has no {operation.name} access to topic {topic}"
    )
