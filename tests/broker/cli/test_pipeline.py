"""`headrace pipeline` up to the start of Spark: list, init, validate, status, and what `run` refuses."""

import json
from pathlib import Path

import pytest

from headrace.spark.pipelines.checkpoints import Status, open_checkpoint
from tests.broker.cli.conftest import Run


@pytest.fixture
def config(headrace: Run, tmp_path: Path) -> Path:
    """A configuration as `init` prints it, with its checkpoint in the test's folder."""
    path = tmp_path / "archive.yaml"
    text = headrace("pipeline", "init", "archive", "--topic", "weblogs").stdout
    path.write_text(text.replace("./checkpoints", str(tmp_path / "checkpoints")))
    return path


def test_pipelines_are_listed(headrace: Run) -> None:
    listed = json.loads(headrace("pipeline", "list", "--json").stdout)
    assert [row["pipeline"] for row in listed] == ["archive", "replay", "aggregate", "dedup", "dlq-report", "sql"]
    assert "archive" in headrace("pipeline", "list").stdout


def test_a_configuration_is_validated_with_its_topics_or_without(headrace: Run, config: Path) -> None:
    assert "is valid" in headrace("pipeline", "validate", "--offline", str(config)).stderr
    refused = headrace("pipeline", "validate", str(config), status=1).stderr
    assert "topic weblogs does not exist" in refused
    headrace("topic", "create", "weblogs")
    headrace("pipeline", "validate", str(config))
    config.write_text(config.read_text() + "colour: red\n")
    assert "unknown key colour" in headrace("pipeline", "validate", str(config), status=1).stderr


def test_what_cannot_be_run_is_told_before_spark_starts(headrace: Run, config: Path, tmp_path: Path) -> None:
    assert "there is no pipeline 'nothing'" in headrace("pipeline", "init", "nothing", status=1).stderr
    assert "cannot be read" in headrace("pipeline", "run", str(tmp_path / "none.yaml"), status=1).stderr
    assert "topic weblogs does not exist" in headrace("pipeline", "run", str(config), status=1).stderr
    assert "is not a duration" in headrace("pipeline", "run", str(config), "--set", "trigger=often", status=1).stderr


def test_the_status_is_what_the_last_run_wrote(headrace: Run, config: Path, tmp_path: Path) -> None:
    assert "never ran" in headrace("pipeline", "status", str(config)).stdout
    checkpoint = open_checkpoint(str(tmp_path / "checkpoints" / "archive"))
    checkpoint.write_status(
        Status(pipeline="archive", name="archive", state="failed", at_ms=1000, rows=77, lag=5, error="no disk")
    )
    told = headrace("pipeline", "status", str(config)).stdout
    assert all(words in told for words in ("failed", "77", "no disk"))
    document = json.loads(headrace("pipeline", "status", str(config), "--json").stdout)
    assert document[0]["status"]["rows"] == 77
