"""The tests of a file can be found: by its name, or by its line in tests/index.toml."""

import tomllib
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
PRODUCT = TESTS.parent / "headrace"
INDEX: dict[str, dict[str, list[str]]] = tomllib.loads((TESTS / "index.toml").read_text())
ROOMS = ("api", "coordinators", "log", "replicas")


def sources() -> Iterator[tuple[str, str]]:
    """Room (a folder, with the folders in it as rooms of their own) and name of every file that needs tests."""
    for path in sorted(path for room in ROOMS for path in (PRODUCT / room).rglob("*.py*")):
        if path.suffix in (".py", ".pyx") and path.stem != "__init__":
            yield path.parent.relative_to(PRODUCT).as_posix(), path.stem


def has_a_test_of_its_name(room: str, name: str) -> bool:
    return any((TESTS / suite / room / f"test_{name}.py").is_file() for suite in ("unit", "broker"))


def test_every_file_is_found_in_the_index_or_by_the_name_of_its_test() -> None:
    lost = [
        f"headrace/{room}/{name}: name a test file after it, or add a line under [{room}] in tests/index.toml"
        for room, name in sources()
        if name not in INDEX.get(room, {}) and not has_a_test_of_its_name(room, name)
    ]
    assert not lost, "\n".join(lost)


def test_the_index_names_only_what_is_there() -> None:
    known = set(sources())
    wrong = []
    for room, entries in INDEX.items():
        for name, tests in entries.items():
            if (room, name) not in known:
                wrong.append(f"[{room}] {name}: there is no such file in headrace/{room}, take the line out")
            if not tests:
                wrong.append(f"[{room}] {name}: name the tests")
            wrong += [
                f"[{room}] {name}: there is no tests/{test}"
                for test in tests
                if not (TESTS / test).is_file() or not (test.endswith(".txt") or Path(test).name.startswith("test_"))
            ]
    assert not wrong, "in tests/index.toml:\n" + "\n".join(wrong)


def test_a_room_of_the_index_is_in_order() -> None:
    """Names in order, so that one looks once, and so that two changes that add a name seldom meet on one line."""
    wrong = [f"[{room}]: put the names in order" for room, entries in INDEX.items() if list(entries) != sorted(entries)]
    assert not wrong, "\n".join(wrong)
