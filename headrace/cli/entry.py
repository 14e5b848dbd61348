"""The entry point of the `headrace` script. To start a broker fast, `serve` is handled here; the rest of the command
line and its libraries are loaded for other commands only. Garbage collection is off while modules load, because none of
them becomes garbage; the server switches it on once it is loaded."""

import gc
import sys


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        gc.disable()
        from headrace.cli import serve

        sys.exit(serve.run(sys.argv[2:]))
    from headrace.cli.main import app

    app()
