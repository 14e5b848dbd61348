"""IncrementalAlterConfigs, v0 to v1 (KIP-339): sets or deletes single settings, or changes the items of a list setting.

For each resource, either all changes are applied or none.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from headrace.api.contract import Reply, Request, Steps
from headrace.api.describe_configs import ResourceType, refused_resource
from headrace.api.pieces import Pace, in_turns
from headrace.cluster.controller import Controller
from headrace.cluster.setting_changes import Resource, SettingChange, SettingOperation
from headrace.wire.errors import ErrorCode, KafkaError
from headrace.wire.messages import Message

_KINDS: Mapping[int, Resource] = {
    ResourceType.TOPIC: "topic",
    ResourceType.BROKER: "broker",
    ResourceType.GROUP: "group",
}
_RESOURCES = 20  # that the controller is asked to change in one piece
_OPERATIONS = {operation.value: operation for operation in SettingOperation}


class IncrementalAlterConfigs:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __call__(self, request: Request) -> Reply:
        return alter_resources(
            self._controller, request.body, lambda resource: [_change(config) for config in resource.configs]
        )


def _change(config: Message) -> SettingChange:
    operation = _OPERATIONS.get(config.config_operation)
    if operation is None:
        raise KafkaError(ErrorCode.invalid_request, f"{config.name}: operation {config.config_operation} is unknown")
    return SettingChange(operation, config.name, config.value)


def alter_resources(
    controller: Controller,
    body: Message,
    changes_of: Callable[[Message], Sequence[SettingChange]],
    *,
    replace_all: bool = False,
) -> Steps[Awaitable[Message]]:
    """The shared part of AlterConfigs and IncrementalAlterConfigs."""
    pace = Pace(_RESOURCES)
    times = Counter((resource.resource_type, resource.resource_name) for resource in body.resources)
    asked: list[tuple[Message, asyncio.Future[Any] | KafkaError]] = []
    for resource in body.resources:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.invalid_request, f"{resource.resource_name!r} is repeated in the request")
            kind = _KINDS.get(resource.resource_type)
            if kind is None:
                raise refused_resource(resource.resource_type)
            answer = controller.alter_settings(
                kind,
                resource.resource_name,
                changes_of(resource),
                replace_all=replace_all,
                validate_only=body.validate_only,
            )
            asked.append((resource, answer))
        except KafkaError as error:
            asked.append((resource, error.with_traceback(None)))  # its frames would keep all others
        if pace.is_over():
            yield
    return _answer(asked)


async def _answer(asked: list[tuple[Message, asyncio.Future[Any] | KafkaError]]) -> Message:
    responses = []
    async for resource, answer in in_turns(asked):
        response = Message(resource_type=resource.resource_type, resource_name=resource.resource_name)
        try:
            if isinstance(answer, KafkaError):
                raise answer
            await answer
        except KafkaError as error:
            response.error_code, response.error_message = error.code, error.message
        responses.append(response)
    return Message(responses=responses)
