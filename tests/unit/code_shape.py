"""The shape of a source file, Python or Cython: whether it says what it is, and how long its functions are.

Python is parsed. Cython's own parser needs all that a file includes; its layout is as regular as Python's, so that
indentation tells where a function ends.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DEFINES = re.compile(r"( *)(?:async def|def|cpdef|cdef)\s[^=]*?(\w+)\(")
CLASS = re.compile(r"( *)(?:cdef\s+)?class\s+(\w+)")


def says_what_it_is(path: Path) -> bool:
    text = path.read_text()
    if path.suffix == ".py":
        tree = ast.parse(text)
        return not tree.body or bool(ast.get_docstring(tree))
    if path.suffix == ".pxi":  # it is included in the middle of another file, where a docstring would be a statement
        return text.startswith("# ")
    return re.sub(r"\A(#.*\n)*", "", text).startswith('"""')


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name (`Class.method`) and lines of the body, without signature and docstring."""
    text = path.read_text()
    yield from _of_python(ast.parse(text), "") if path.suffix == ".py" else _of_cython(text.split("\n"))


def _of_python(owner: ast.AST, prefix: str) -> Iterator[tuple[str, int]]:
    for node in ast.iter_child_nodes(owner):
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        inside = f"{prefix}{node.name}." if named else prefix  # type: ignore[attr-defined]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) and len(node.body) > 1 else node.body
            yield f"{prefix}{node.name}", (node.end_lineno or 0) - body[0].lineno + 1
        yield from _of_python(node, inside)


def _of_cython(lines: list[str]) -> Iterator[tuple[str, int]]:
    owners: list[tuple[int, str]] = []
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip():
            owners = [owner for owner in owners if owner[0] < indent]
        if found := CLASS.match(line):
            owners.append((indent, found[2]))
        elif found := DEFINES.match(line):
            count = _body_lines(lines, number, indent)
            if count:
                yield ".".join([*(name for _, name in owners), found[2]]), count


def _body_lines(lines: list[str], at: int, indent: int) -> int:
    """How many lines follow the signature that begins here; none if it is a declaration without a body."""
    while not lines[at].split("#")[0].rstrip().endswith(":"):
        at += 1
        if at == len(lines) or (lines[at].strip() and len(lines[at]) - len(lines[at].lstrip()) < indent):
            return 0
    first = at + 1
    if lines[first].lstrip().startswith('"""'):
        last_of_it = first if lines[first].count('"""') == 2 else first + 1
        while '"""' not in lines[last_of_it]:
            last_of_it += 1
        first = last_of_it + 1
    last = at
    for number in range(first, len(lines)):
        text = lines[number]
        if text.strip():
            if len(text) - len(text.lstrip()) <= indent:
                break
            last = number
    return last - first + 1
