"""The catalogue of pipelines, used by the command line, the docs and the launcher.

A pipeline is a module that implements the protocol below. Invariant: reading the catalogue or a configuration never
imports Spark.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any, Protocol, cast

from headrace.model.failure import Failure
from headrace.spark.pipelines.configuration import AVAILABLE_NOW, Configuration, convert, read_document, span_ms
from headrace.spark.pipelines.run import Run
from headrace.spark.pipelines.topics import Needed

NAMES = ("archive", "replay", "aggregate", "dedup", "dlq-report", "sql")


class Pipeline(Protocol):
    SUMMARY: str
    TEMPLATE: str  # an initial YAML file; @BROKER@ and @TOPIC@ are replaced by the user's
    Config: type[Configuration]

    def check(self, config: Any) -> None:
        """Raise a Failure if the configuration is invalid. Makes no requests."""
        ...

    def topics(self, config: Any) -> list[Needed]:
        """Every topic that the configuration names; all must exist."""
        ...

    def shape(self, config: Any) -> dict[str, Any]:
        """The part of the configuration that must not change while a checkpoint is used."""
        ...

    def run(self, config: Any, run: Run) -> dict[str, object]:
        """Run to the end; the returned facts are printed."""
        ...


def pipeline(name: str, where: str) -> Pipeline:
    if name not in NAMES:
        raise Failure(f"{where}: there is no pipeline {name!r}: choose one of {', '.join(NAMES)}")
    module = importlib.import_module(f"headrace.spark.pipelines.{name.replace('-', '_')}")
    return cast("Pipeline", module)


def template(name: str, broker: str, topic: str) -> str:
    """An initial configuration."""
    text = pipeline(name, "init").TEMPLATE.replace("@BROKER@", broker).replace("@TOPIC@", topic)
    return text.lstrip("\n")


def read_configuration(text: str, where: str, changes: Mapping[str, str] | None = None) -> Configuration:
    """The typed configuration in a YAML text; Failure names the first mistake."""
    document = read_document(text, where, changes)
    name = document.get("pipeline")
    if not isinstance(name, str):
        raise Failure(f"{where}: the key pipeline is missing: name the one to run, one of {', '.join(NAMES)}")
    made = pipeline(name, where)
    config = convert(document, made.Config, where)
    try:
        if config.trigger != AVAILABLE_NOW:
            span_ms(config.trigger, "trigger")
        made.check(config)
    except Failure as failure:
        raise Failure(f"{where}: {failure}") from None
    return config
