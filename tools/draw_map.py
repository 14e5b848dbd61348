"""Updates the map in docs/architecture.md: removes deleted files, adds new ones.

Existing descriptions are kept; a new file gets the first sentence of its docstring, to be shortened by hand. Run as
`make map`; the tidy test compares the map with the tree.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "architecture.md"
MAP = re.compile(r"(^## The map\n.*?^```[a-z]*\n)(.*?)(^```)", re.DOTALL | re.MULTILINE)
# From the bottom layer up; a folder that is not named here comes last.
ROOMS = (
    "world",
    "wire",
    "model",
    "client",
    "log",
    "cluster",
    "replicas",
    "coordinators",
    "api",
    "server",
    "testing",
    "cli",
    "sdk",
    "spark",
)
WORDS_AT = 34


def words_on_map(drawn: str) -> dict[str, str]:
    """Path -> description, for files and for folders (which end in a slash)."""
    found: dict[str, str] = {}
    folders: list[str] = []
    for line in filter(str.strip, drawn.splitlines()):
        name, _, words = line.strip().partition(" ")
        del folders[(len(line) - len(line.lstrip())) // 2 :]
        found["".join(folders) + name] = words.strip()
        if name.endswith("/"):
            folders.append(name)
    return found


def first_sentence(path: Path) -> str:
    if path.suffix == ".pxi":  # its comment
        docstring = re.sub(r"^# ?", "", re.match(r"(#.*\n)*", path.read_text())[0], flags=re.MULTILINE)
    else:  # of a compiled module, what stands before its code
        text = path.read_text() if path.suffix == ".py" else "".join(path.read_text().partition('"""\n')[:2])
        docstring = ast.get_docstring(ast.parse(text)) or ""
    paragraph = " ".join(docstring.split("\n\n")[0].split())
    return re.split(r"\. |: ", paragraph)[0].rstrip(".")


def draw(folder: Path, depth: int, words: dict[str, str]) -> list[str]:
    name = folder.relative_to(ROOT).as_posix() + "/"
    lines = [entry(depth, folder.name + "/", words.get(name, ""))]
    inside = [path for path in folder.iterdir() if path.name not in ("__init__.py", "__pycache__")]
    for path in sorted(inside, key=lambda path: (path.is_file(), place(path))):
        if path.is_dir():
            lines += draw(path, depth + 1, words)
        elif path.suffix in (".py", ".pyx", ".pxi"):
            said = words.get(path.relative_to(ROOT).as_posix()) or first_sentence(path)
            lines.append(entry(depth + 1, path.name, said))
    return lines


def place(path: Path) -> tuple[int, str]:
    return (ROOMS.index(path.name) if path.name in ROOMS else len(ROOMS), path.name)


def entry(depth: int, name: str, words: str) -> str:
    return f"{'  ' * depth}{name}".ljust(WORDS_AT - 1) + f" {words}" if words else f"{'  ' * depth}{name}"


def main() -> None:
    page = PAGE.read_text()
    drawn = MAP.search(page)
    assert drawn, f"{PAGE} has no section '## The map' with a code block"
    words = words_on_map(drawn[2])
    lines = draw(ROOT / "headrace", 0, words) + draw(ROOT / "sim", 0, words)
    PAGE.write_text(page[: drawn.start(2)] + "\n".join(lines) + "\n" + page[drawn.end(2) :])


if __name__ == "__main__":
    main()
