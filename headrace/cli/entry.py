"""Where the `headrace` script enters. A broker must start at once, so `serve` goes its own short way: the rest of the
command line, with its libraries, is loaded for all other commands only. What it loads stays for good, so nobody looks
for garbage in it: the server, once it is loaded, switches that on."""

import gc
import sys


def main() -> None:
    if sys.argv[1:2] == ["serve"]:
        gc.disable()
        from headrace.cli import serve

        sys.exit(serve.run(sys.argv[2:]))
    from headrace.cli.main import app

    app()
