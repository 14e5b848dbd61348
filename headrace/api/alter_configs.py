"""AlterConfigs, v0 to v2: replaces all settings of a resource at once.

A setting that the request does not contain is reset to its default; that is why Kafka added IncrementalAlterConfigs
(KIP-339), which replaces this API.
"""

from __future__ import annotations

from headrace.api.contract import Reply, Request
from headrace.api.incremental_alter_configs import alter_resources
from headrace.cluster.controller import Controller
from headrace.cluster.setting_changes import SettingChange, SettingOperation
from headrace.wire.messages import Message


class AlterConfigs:
    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def __call__(self, request: Request) -> Reply:
        return alter_resources(self._controller, request.body, _changes, replace_all=True)


def _changes(resource: Message) -> list[SettingChange]:
    return [SettingChange(SettingOperation.SET, config.name, config.value) for config in resource.configs]
