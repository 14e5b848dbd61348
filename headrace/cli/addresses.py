"""Parses addresses on the command line. Pure; used by `serve`, and through options.py by all other commands."""

from argparse import ArgumentTypeError


def address(text: str) -> tuple[str, int]:
    """`host:port` or `[v6]:port`; port 0 means any free port."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ArgumentTypeError(f"{text!r} is not HOST:PORT, such as 127.0.0.1:9092")
    return host.removeprefix("[").removesuffix("]"), int(port)
