"""The shape of the project, tested: the map, the doors to the outside, names, sizes, docs and links.

Every message says what to do. The layers are import-linter's affair, style is ruff's and types are mypy's; this is
what none of them sees.
"""

import ast
import re
import subprocess
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from headrace.model.broker_config import BrokerConfig
from headrace.model.topic_config import TopicConfig
from tests.parts import read_parts
from tests.unit.code_shape import functions, says_what_it_is

ROOT = Path(__file__).resolve().parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
MAX_LINES = 450
MAX_FUNCTION_LINES = 50  # of a body: with signature and docstring, that is a screen
# Functions that are longer all the same, and how long: they may get shorter, and then the number here does.
LONG_FUNCTIONS = {
    ("headrace/api/table.py", "build_table"): 70,  # one table
    ("headrace/wire/_columns.pyx", "Columns.add"): 52,
}
CODE = (".py", ".pyx", ".pxi")
BANNED_WORDS = {"utils", "util", "helpers", "helper", "common", "manager", "impl", "misc"}
FREE_ROOMS = ("headrace/world", "headrace/cli", "headrace/testing")  # where the outside may be touched directly


@cache
def project_files() -> tuple[Path, ...]:
    """Every file that is, or would be, under version control."""
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, capture_output=True, text=True
    )
    return tuple(ROOT / name for name in sorted(set(listed.stdout.splitlines())) if (ROOT / name).is_file())


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def modules(*folders: str, suffixes: tuple[str, ...] = (".py",)) -> list[Path]:
    return [path for path in project_files() if path.suffix in suffixes and relative(path).startswith(folders)]


def texts() -> Iterator[tuple[str, str]]:
    """Name and contents of every text file."""
    for path in project_files():
        try:
            yield relative(path), path.read_text()
        except UnicodeDecodeError:
            continue


# --- the map ---------------------------------------------------------------------------------------------------------


def mapped_files() -> dict[str, str]:
    """The tree in the first code block under "## The map": path -> what is said about it."""
    text = ARCHITECTURE.read_text()
    block = re.search(r"^## The map\n.*?^```[a-z]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block, "docs/architecture.md needs a section '## The map' with the tree in a code block"
    found: dict[str, str] = {}
    folders: list[str] = []
    for line in filter(str.strip, block[1].splitlines()):
        name, _, words = line.strip().partition(" ")
        depth = (len(line) - len(line.lstrip())) // 2
        del folders[depth:]
        if name.endswith("/"):
            folders.append(name)
        else:
            found["".join(folders) + name] = words.strip()
    return found


def test_the_map_in_the_architecture_page_is_the_tree() -> None:
    sources = modules("headrace/", "sim/", suffixes=CODE)
    real = {relative(path) for path in sources if path.name != "__init__.py"}
    mapped = mapped_files()
    absent = [f"not on the map: {name}" for name in sorted(real - set(mapped))]
    ghosts = [f"on the map, but not there: {name}" for name in sorted(set(mapped) - real)]
    silent = [f"on the map without words: {name}" for name in mapped if not mapped[name]]
    wrong = absent + ghosts + silent
    assert not wrong, "run `make map`, then edit the words in docs/architecture.md:\n" + "\n".join(wrong)


# --- names and sizes -------------------------------------------------------------------------------------------------


def test_file_names_are_nouns_of_the_domain() -> None:
    bad = [
        f"{relative(path)}: name it by what it holds"
        for path in project_files()
        if any(BANNED_WORDS & set(re.split(r"[_.-]", part)) for part in path.relative_to(ROOT).parts)
    ]
    assert not bad, "\n".join(bad)


def test_a_file_holds_one_idea() -> None:
    long = [
        f"{relative(path)} has {count} lines, the limit is {MAX_LINES}: give its second idea a file"
        for path in modules("headrace/", suffixes=CODE)
        if (count := path.read_text().count("\n")) > MAX_LINES
    ]
    assert not long, "\n".join(long)


def test_every_module_says_what_room_it_is() -> None:
    silent = [
        f"{relative(path)} needs a docstring: what room this is, what it owns, who calls it, which invariant holds"
        for path in modules("headrace/", "sim/", "bench/", "tests/", suffixes=CODE)
        if not says_what_it_is(path)
    ]
    assert not silent, "\n".join(silent)


def test_a_function_fits_on_a_screen() -> None:
    wrong, long = [], set()
    for path in modules("headrace/", "sim/", suffixes=CODE):
        for name, lines in functions(path):
            if lines <= MAX_FUNCTION_LINES:
                continue
            place = (relative(path), name)
            long.add(place)
            if place not in LONG_FUNCTIONS:
                wrong.append(f"{place[0]}: {name} has {lines} lines, the limit is {MAX_FUNCTION_LINES}: split it")
            elif lines != LONG_FUNCTIONS[place]:
                longer = lines > LONG_FUNCTIONS[place]
                advice = "it may not grow, split it" if longer else "well done, lower its number in LONG_FUNCTIONS"
                wrong.append(f"{place[0]}: {name} has {lines} lines and had {LONG_FUNCTIONS[place]}: {advice}")
    wrong += [f"take {place} out of LONG_FUNCTIONS, it is not long any more" for place in set(LONG_FUNCTIONS) - long]
    assert not wrong, "\n".join(wrong)


def test_functions_of_compiled_modules_are_seen(tmp_path: Path) -> None:
    source = tmp_path / "_some.pyx"
    source.write_text(
        '# cython: language_level=3\n"""What it is."""\n\ncdef extern from "x.h":\n    int other(int)\n\n'
        "cdef class Log:\n    cpdef long add(\n        self, long number\n    ) except -1:  # a comment\n"
        '        """What it does,\n        and more."""\n'
        "        if number:\n\n            return 1\n        return 0\n\n"
        "cdef inline bint small(long number) noexcept nogil:\n    return number < 9\n"
    )
    assert says_what_it_is(source)
    assert list(functions(source)) == [("Log.add", 4), ("small", 1)]


# --- the doors to the outside ----------------------------------------------------------------------------------------

CLOSED_MODULES = {
    "time": "ask the Clock",
    "random": "ask the Entropy",
    "secrets": "ask the Entropy",
    "socket": "ask the Net",
    "shutil": "ask the Disk",
    "tempfile": "ask the Disk",
    "glob": "ask the Disk",
    "fcntl": "ask the Disk",
    "mmap": "ask the Disk",
    "sqlite3": "go through cluster/store.py",
}
ALLOWED = {("headrace/cluster/embedded.py", "sqlite3")}
CLOSED_CALLS = (
    (re.compile(r"(io\.)?open$"), "ask the Disk to open files"),
    (
        re.compile(
            r"os\.(open|read|write|p?readv?|p?writev?|close|unlink|remove|rename|renames|replace|mkdir|makedirs|rmdir|"
            r"removedirs|listdir|scandir|walk|stat|lstat|fstat|statvfs|fsync|fdatasync|ftruncate|truncate|link|symlink|"
            r"path\.(exists|isfile|isdir|getsize|getmtime)|sendfile|posix_f\w+)$"
        ),
        "ask the Disk",
    ),
    (re.compile(r"os\.(urandom|getrandom)$|(uuid\.)?uuid[14]$"), "ask the Entropy"),
    (re.compile(r".*\.(read_text|write_text|write_bytes|touch|iterdir|rglob)$"), "ask the Disk"),
    (re.compile(r"(datetime\.)*(datetime|date)\.(now|utcnow|today)$"), "ask the Clock for the time"),
    (re.compile(r"asyncio\.(timeout|timeout_at|wait_for|open_connection|start_server)$"), "use the Clock or the Net"),
    (re.compile(r".*loop(\(\))?\.(time|call_(later|at)|create_(server|connection))$"), "use the Clock or the Net"),
)  # fmt: skip


def doors_forced(name: str, source: str) -> Iterator[str]:
    """Every place in a module that reaches outside past the world."""
    for node in ast.walk(ast.parse(source)):
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            imported = [node.module]
        for module in imported:
            if module in CLOSED_MODULES and (name, module) not in ALLOWED:
                yield f"{name}:{node.lineno} imports {module}: {CLOSED_MODULES[module]}"
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        for pattern, instead in CLOSED_CALLS:
            if pattern.fullmatch(called):
                yield f"{name}:{node.lineno} calls {called}: {instead}"
        if called == "asyncio.sleep" and not is_zero(
            node.args
        ):  # asyncio.sleep(0) waits for nothing, it lets others run
            yield f"{name}:{node.lineno} calls asyncio.sleep: sleep on the Clock"


def is_zero(arguments: list[ast.expr]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], ast.Constant) and arguments[0].value == 0


def test_nothing_but_the_world_touches_the_outside() -> None:
    forced = [
        complaint
        for path in modules("headrace/")
        if not relative(path).startswith(FREE_ROOMS)
        for complaint in doors_forced(relative(path), path.read_text())
    ]
    assert not forced, "go through the World that was handed in:\n" + "\n".join(forced)


@pytest.mark.parametrize(
    "line",
    [
        "import time",
        "from random import choice",
        "open('x')",
        "os.unlink('x')",
        "uuid.uuid4()",
        "datetime.datetime.now()",
        "await asyncio.sleep(1)",
        "await asyncio.wait_for(x, 3)",
        "asyncio.get_running_loop().call_later(1, x)",
        "import sqlite3",
    ],
)
def test_a_forced_door_is_seen(line: str) -> None:
    source = f"async def f(x):\n    {line}\n    await asyncio.sleep(0)\n    clock.call_later(1, x)\n"
    assert len(list(doors_forced("headrace/log/segment.py", source))) == 1


def test_only_the_command_line_prints() -> None:
    printing = [
        f"{relative(path)}:{node.lineno} prints: log it, or return it to the command line"
        for path in modules("headrace/")
        if not relative(path).startswith("headrace/cli")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert not printing, "\n".join(printing)


def test_every_setting_is_heeded() -> None:
    read = {
        node.attr
        for path in modules("headrace/")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
    }
    ignored = [
        f"{config.__name__}.{field} is read nowhere: heed the setting, or take it out"
        for config in (BrokerConfig, TopicConfig)
        for field in config.__struct_fields__
        if field not in read
    ]
    assert not ignored, "\n".join(ignored)


# --- texts -----------------------------------------------------------------------------------------------------------

UNFINISHED = re.compile(r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(" + "|".join(("wo" + "rk", "ho" + "me", "ro" + "ot")) + r")/")


def test_nothing_is_left_for_later_in_the_code() -> None:
    left = [
        f"{name}:{number} do it now, or write it into docs/gaps.md: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert not left, "\n".join(left)


def test_no_file_knows_the_machine_it_was_written_on() -> None:
    knowing = [
        f"{name}:{number} names a path of one machine, use a relative one: {line.strip()}"
        for name, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert not knowing, "\n".join(knowing)


# --- docs ------------------------------------------------------------------------------------------------------------

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def links(page: Path) -> list[str]:
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [link for link in LINK.findall(prose) if "://" not in link and not link.startswith("mailto:")]


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_in_the_docs_lead_somewhere() -> None:
    dead = []
    for page in (path for path in project_files() if path.suffix == ".md"):
        for link in links(page):
            name, _, anchor = link.partition("#")
            target = (page.parent / name).resolve() if name else page
            if not target.exists():
                dead.append(f"{relative(page)} links to {link}, which is not there")
            elif anchor and target.suffix == ".md" and anchor not in anchors(target):
                dead.append(f"{relative(page)} links to {link}, and that page has no such heading")
    assert not dead, "\n".join(dead)


def test_every_page_can_be_found_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in links(index)}
    lost = [
        f"link {relative(page)} from docs/README.md"
        for page in project_files()
        if page.suffix == ".md" and relative(page).startswith("docs/") and page != index and page not in linked
    ]
    assert not lost, "\n".join(lost)


def test_decisions_are_numbered_without_gaps() -> None:
    numbers = [path.name[:4] for path in project_files() if relative(path).startswith("docs/decisions/")]
    wanted = [f"{number:04}" for number in range(1, len(numbers) + 1)]
    assert numbers == wanted, f"number the files of docs/decisions from 0001 on, each once: {numbers}"


# --- suites ----------------------------------------------------------------------------------------------------------


def test_every_suite_has_a_budget_and_all_fit_into_twelve_minutes() -> None:
    budgets = tomllib.loads((ROOT / "tests" / "budgets.toml").read_text())["suites"]
    suites = {
        path.relative_to(ROOT).parts[1]
        for path in project_files()
        if relative(path).startswith("tests/") and path.name.startswith("test_")
    }
    assert suites <= set(budgets), f"give these suites a budget in tests/budgets.toml: {sorted(suites - set(budgets))}"
    total_s = sum(budget["seconds"] for budget in budgets.values())
    # Three workers for twelve minutes. A run on two cores that added up to 1,480 s took seven and a half.
    assert total_s <= 2000, f"the budgets add up to {total_s} s: make a suite shorter, its long form is for `make soak`"


def test_no_part_of_the_soak_takes_longer_than_45_minutes() -> None:
    parts = read_parts()
    long = [f"{name} takes {part.soak_seconds} s: split it" for name, part in parts.items() if part.soak_seconds > 2700]
    assert not long, "\n".join(long)
    claimed = [(name, test) for name, part in parts.items() for test in part.tests]
    lost = [f"{name}: {test}" for name, test in claimed if not (ROOT / "tests" / test.partition("::")[0]).is_file()]
    assert not lost, "parts in tests/budgets.toml name files that are not there:\n" + "\n".join(lost)


def test_every_long_form_is_in_a_part_of_the_soak() -> None:
    """Else it would never run."""
    named = {test.partition("::")[0] for part in read_parts().values() for test in part.tests}
    lost = [
        name
        for path in modules("tests/")
        if path.name.startswith("test_")
        and re.search(r"\b(SOAK|SOAKING|soaking)\b", path.read_text())
        and (name := relative(path).removeprefix("tests/")) not in named | {"unit/test_tidy.py"}
    ]
    assert not lost, "name these in a part in tests/budgets.toml:\n" + "\n".join(lost)


# What a test may import is not loaded by tests of unit/, not even by way of another file of tests/.
STARTS_A_BROKER = ("headrace.testing.local_broker", "headrace.server.broker", "headrace.server.run", "tests.broker")
BROKER_FIXTURES = {"broker", "broker_factory"}


@cache
def imports(module: str) -> frozenset[str]:
    """The full names of all that a file of tests/ may mean by its imports."""
    path = ROOT / (module.replace(".", "/") + ".py")
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())) if path.is_file() else ():
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return frozenset(found)


def loaded_tests(module: str) -> set[str]:
    """The modules that a file of tests/ imports, and those that the files of tests/ among them import."""
    found, new = set[str](), {module}
    while new:
        found |= new
        new = {name for known in new if known.startswith("tests.") for name in imports(known)} - found
    return found - {module}


def fixtures_asked_for(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The arguments of tests and fixtures that pytest fills in, not `parametrize`."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
        if node.name.startswith("test_") or any("fixture" in text for text in decorators):
            given = " ".join(text for text in decorators if "parametrize" in text)
            for argument in node.args.args:
                if not re.search(rf"\b{argument.arg}\b", given):
                    yield argument.arg, node.lineno


def test_no_test_of_a_unit_starts_a_broker() -> None:
    found = []
    for path in modules("tests/unit/"):
        name = relative(path)
        loaded = loaded_tests(name.removesuffix(".py").replace("/", "."))
        found += [f"{name} imports {module}" for module in sorted(loaded) if module.startswith(STARTS_A_BROKER)]
        asked = fixtures_asked_for(ast.parse(path.read_text()))
        found += [f"{name}:{line} takes the fixture {fixture}" for fixture, line in asked if fixture in BROKER_FIXTURES]
    assert not found, "tests that start a broker belong into tests/broker:\n" + "\n".join(found)
