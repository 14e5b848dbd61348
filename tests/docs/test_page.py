"""What counts as a command, as its output, and as agreement between the two."""

from pathlib import Path

from .page import agrees, steps


def test_commands_are_found_with_their_lines_and_their_output(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# Page\n\n```console\n$ echo a \\\n    b\na b\n$ true\n```\n\n```sh\nrm -rf /\n```\n\n```python\npass\n```\n"
    )
    found = [(step.line, step.kind, step.text, step.shown) for step in steps(page)]
    assert found == [(4, "console", "echo a b", "a b\n"), (7, "console", "true", ""), (15, "python", "pass\n", "")]


def test_output_agrees_up_to_blanks_ids_and_dots() -> None:
    assert agrees(
        "topic id 2SzBhKO2Q3yV80aFa198KA at 127.0.0.1:9092", "topic id iyY/XQ6WQfWYl2YbV9LTmA at 127.0.0.1:40001"
    )
    assert agrees("id  …  leader 1\n", "id 4711   leader   1\n")
    assert agrees("a\n…\n", "a\nb\nc\n")
    assert not agrees("a\n", "a\nb\n")
    assert not agrees("id … leader 1\n", "id 4711 leader 2\n")
