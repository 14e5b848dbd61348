"""A checkpoint belongs to the pipeline that made it, and tells how that stands."""

from pathlib import Path

import pytest

from headrace.model.failure import Failure
from headrace.spark.pipelines.checkpoints import Status, open_checkpoint


def test_a_checkpoint_is_claimed_once_and_known_again(tmp_path: Path) -> None:
    shape = {"pipeline": "aggregate", "window": "1m", "by": ["status"]}
    assert open_checkpoint(str(tmp_path / "c")).claim(shape) is True
    assert open_checkpoint(str(tmp_path / "c")).claim(shape) is False


def test_a_checkpoint_of_another_shape_is_refused_with_what_changed(tmp_path: Path) -> None:
    open_checkpoint(str(tmp_path)).claim({"pipeline": "aggregate", "window": "1m"})
    with pytest.raises(Failure, match=r"belongs to another query: window was '1m' and is '5m'\. Choose another"):
        open_checkpoint(str(tmp_path)).claim({"pipeline": "aggregate", "window": "5m"})
    with pytest.raises(Failure, match="pipeline was 'aggregate' and is 'archive'"):
        open_checkpoint(str(tmp_path)).claim({"pipeline": "archive"})


def test_a_checkpoint_of_any_other_query_of_spark_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    with pytest.raises(Failure, match="was made by another query"):
        open_checkpoint(str(tmp_path)).claim({"pipeline": "archive"})
    assert [path.name for path in tmp_path.iterdir()] == ["offsets"]


def test_a_garbled_owner_is_named(tmp_path: Path) -> None:
    (tmp_path / "pipeline.json").write_text("{")
    with pytest.raises(Failure, match=r"pipeline\.json is corrupt"):
        open_checkpoint(str(tmp_path)).claim({"pipeline": "archive"})


def test_the_last_status_is_kept(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(str(tmp_path))
    assert checkpoint.status() is None
    status = Status(pipeline="archive", name="a", state="failed", at_ms=7, rows=3, lag=None, error="no disk")
    checkpoint.write_status(status)
    assert open_checkpoint(str(tmp_path)).status() == status
