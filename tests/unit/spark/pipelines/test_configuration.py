"""A configuration is typed, and what is wrong with it is told in one sentence that names the key."""

import pytest

from headrace.model.failure import Failure
from headrace.spark.pipelines.archive import Config
from headrace.spark.pipelines.catalogue import NAMES, pipeline, read_configuration, template
from headrace.spark.pipelines.configuration import span_ms

ARCHIVE = """
pipeline: archive
source: {brokers: "b:1", topics: [logs]}
lake: {path: ./lake}
checkpoint: ./checkpoint
"""


def refusal(text: str) -> str:
    with pytest.raises(Failure) as refused:
        read_configuration(text, "x.yaml")
    return str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_every_template_is_a_good_configuration(name: str) -> None:
    config = read_configuration(template(name, "broker:9092", "orders"), "x.yaml")
    assert config.pipeline == name
    brokers = {brokers for brokers, _ in pipeline(name, "x").topics(config)}
    assert brokers == {"broker:9092"}, "the template heeds --broker"


def test_what_is_left_out_has_a_default() -> None:
    config = read_configuration(ARCHIVE, "x.yaml")
    assert isinstance(config, Config)
    assert (config.lake.format, config.trigger, config.source.starting) == ("parquet", "5s", "earliest")


def test_a_change_reaches_any_depth() -> None:
    config = read_configuration(ARCHIVE, "x.yaml", {"trigger": "available-now", "lake.file_mb": "7"})
    assert isinstance(config, Config)
    assert (config.trigger, config.lake.file_mb) == ("available-now", 7)
    with pytest.raises(Failure, match="pipeline is not a section"):
        read_configuration(ARCHIVE, "x.yaml", {"pipeline.x": "1"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1, 2]", "x.yaml is not a configuration"),
        ("a: [", "x.yaml is not YAML"),
        ("source: {}", "the key pipeline is missing"),
        ("pipeline: achive", "there is no pipeline 'achive': choose one of archive, replay"),
        (ARCHIVE + "sorce: {}", "unknown key sorce (did you mean source?)"),
        (ARCHIVE + "zzzz: 1", "unknown key zzzz (known here: checkpoint, compaction, lake,"),
        (ARCHIVE.replace("topics:", "tpoics:"), "unknown key source.tpoics (did you mean topics?)"),
        (ARCHIVE.replace("path: ./lake", "{}").replace("{{}}", "{}"), "the key lake.path is missing"),
        (ARCHIVE.replace("./lake}", "./lake, file_mb: many}"), "lake.file_mb: Expected int, got str"),
        (ARCHIVE.replace("./lake}", "./lake, format: orc}"), "lake.format: Invalid enum value 'orc'"),
        (ARCHIVE.replace("[logs]", "[]"), "source needs either topics (a list of names) or pattern"),
        (ARCHIVE + "compaction: {keep_replaced: soon}", "compaction.keep_replaced: 'soon' is not a duration"),
        (ARCHIVE + "metrics: {prt: 1}", "unknown key metrics.prt (did you mean port?)"),
    ],
)
def test_a_mistake_is_named(text: str, words: str) -> None:
    told = refusal(text)
    assert words in told
    assert "\n" not in told


def test_spans_of_time_are_read() -> None:
    assert [span_ms(text, "k") for text in ("10s", "1h30m", "250ms", "2d", "5 m")] == [
        10_000, 5_400_000, 250, 172_800_000, 300_000,
    ]  # fmt: skip
    for wrong in ("", "10", "s", "ten seconds", "1h and 2m"):
        with pytest.raises(Failure, match="is not a duration"):
            span_ms(wrong, "k")


AGGREGATE = """
pipeline: aggregate
source: {topics: [logs]}
parse: {format: json, fields: {path: string, ms: double, at: timestamp}}
time: at
by: [path]
measures: {n: count, p: {percentile: 0.5, of: ms}}
to: {parquet: {path: ./out}}
checkpoint: ./c
"""


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ("at: timestamp", "at: datetime", "parse.fields.at: 'datetime' is not a type"),
        ("fields: {path: string, ms: double, at: timestamp}", "fields: {}", "parse.fields is missing"),
        ("format: json", "format: access-log", "an access log has fixed fields"),
        ("time: at", "time: ms", "time: ms must be a field of type timestamp"),
        ("by: [path]", "by: [host]", "by: the lines have no field host: choose from at, ms, path"),
        ("of: ms", "of: size", "measures.p: the lines have no field size"),
        ("percentile: 0.5", "percentile: 95", "measures.p.percentile must be between 0 and 1"),
        ("percentile: 0.5, of: ms", "percentile: 0.5", "measures.p: name the field"),
        ("percentile: 0.5, of: ms", "sum: ms, avg: ms", "measures.p needs exactly one kind, but has sum, avg"),
        ("percentile: 0.5, of: ms", "sum: ms, of: ms", "sum takes no `of`"),
        ("percentile: 0.5, of: ms", "top: 0, of: ms", "measures.p.top must be between 1 and 1000"),
        ("measures: {n: count,", "measures: {path: count,", "measures.path: the name is used in `by` already"),
        ("to: {parquet: {path: ./out}}", "to: {}", "to needs topic, parquet or both"),
        ("n: count", "n: amount", "measures"),
    ],
)
def test_an_aggregate_that_cannot_be_is_refused(before: str, after: str, words: str) -> None:
    assert before in AGGREGATE
    assert words in refusal(AGGREGATE.replace(before, after))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{pipeline: replay, lake: ./l, to: {}, checkpoint: ./c, trigger: 5s}", "a replay has an end"),
        ("{pipeline: replay, lake: ./l, to: {}, checkpoint: ./c, offsets: {t: {0: []}}}", "offsets.t: write each"),
        ("{pipeline: replay, lake: ./l, to: {}, checkpoint: ./c, since: soon}", "since: Invalid"),
        ("{pipeline: dlq-report, source: {topics: [d]}}", "nothing to do: give the key page"),
        ("{pipeline: dlq-report, source: {topics: [d]}, redrive: {where: 'true'}}", "a redrive needs a folder"),
        ("{pipeline: sql, tables: {}, to: {console: {}}, statement: select 1}", "tables is empty"),
        (
            "{pipeline: sql, tables: {t: {source: {topics: [x]}}}, to: {}, statement: select 1}",
            "to needs exactly one target",
        ),
        ("{pipeline: sql, tables: {t: {source: {topics: [x]}}}, to: {console: {}}}", "exactly one of statement"),
        (
            "{pipeline: sql, mode: stream, tables: {t: {source: {topics: [x]}}}, to: {console: {}}, statement: s}",
            "a stream needs a folder",
        ),
    ],
)
def test_other_pipelines_refuse_what_cannot_be(text: str, words: str) -> None:
    assert words in refusal(text)
