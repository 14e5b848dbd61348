"""Every rule that keeps bad bytes out is found when it is switched off, in compiled code and in its twin."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.api import express_codec
from headrace.log import tail
from headrace.wire import records
from tests.conftest import SOAKING
from tests.mutations.byte_rules import BYTE_CASES, BYTE_RULES, COMPILED_ONLY, EXPRESS, RECORDS, TAIL, ByteCase
from tests.mutations.scratch import PASSED, Scratch

BUILT = {
    TAIL: tail.LogTail.__module__ == "headrace.log._tail",
    EXPRESS: express_codec.COMPILED,
    RECORDS: records.COMPILED,
}
PLAYED = [case for case in BYTE_CASES if SOAKING or case.short]
COPIES = sorted({(case.module, case.compiled or case.beside) for case in PLAYED}, reverse=True)

pytestmark = pytest.mark.skipif(not all(BUILT.values()), reason="there was no C compiler to build compiled code with")


def scratch(folder: Path, module: str, *, compiled: bool, case: ByteCase | None = None) -> Scratch:
    copy = Scratch(folder / "copy")
    if case is not None:
        copy.replace(case.source, case.line, case.instead)
    if not compiled:
        copy.remove(module)
    elif case is None or case.compiled:
        copy.build(module)
    return copy


@pytest.mark.parametrize(("module", "compiled"), COPIES, ids=lambda value: str(value).rpartition("/")[2])
def test_in_an_unchanged_copy_all_scenarios_pass(module: str, compiled: bool, tmp_path: Path) -> None:
    """Else a failure would prove nothing."""
    scenarios = {case.scenario for case in PLAYED if (case.module, case.compiled or case.beside) == (module, compiled)}
    ran = scratch(tmp_path, module, compiled=compiled).run(*sorted(scenarios))
    assert ran.status == PASSED, ran.output
    assert "SKIPPED" not in ran.output, ran.output


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: f"rule-{case.rule}-{Path(case.source).name}")
def test_a_rule_that_is_switched_off_is_found(case: ByteCase, tmp_path: Path) -> None:
    ran = scratch(tmp_path, case.module, compiled=case.compiled or case.beside, case=case).run(case.scenario)
    assert ran.found_a_failure, f"rule {case.rule} ({BYTE_RULES[case.rule]}) is off, and nobody notices:\n{ran.output}"


def test_every_rule_has_a_mutation_in_compiled_code_and_one_beside_it() -> None:
    assert set(BYTE_RULES) == set(range(28, 47))
    assert {case.rule for case in BYTE_CASES if case.compiled} == set(BYTE_RULES)
    assert {case.rule for case in BYTE_CASES if not case.compiled} == set(BYTE_RULES) - COMPILED_ONLY


@pytest.mark.parametrize("case", BYTE_CASES, ids=lambda case: f"rule-{case.rule}-{Path(case.source).name}")
def test_the_line_is_there_once(case: ByteCase) -> None:
    """Also of those that only `make soak` plays, so that a change of the product brings its mutation along."""
    found = (Path(__file__).resolve().parents[2] / case.source).read_text().count(case.line)
    assert found == 1, f"{case.source} has {found} times: {case.line!r}; change the mutation with it"
