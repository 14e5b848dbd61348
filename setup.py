"""Builds the compiled modules; where there is no compiler, their pure-Python twins serve instead."""

from pathlib import Path

from setuptools import Extension, setup

SOURCES = sorted(Path("headrace").glob("*/_*.pyx"))
INCLUDES = [str(path) for path in sorted(Path("headrace/wire").glob("*.pxi"))]

setup(
    ext_modules=[
        Extension(".".join(path.with_suffix("").parts), [str(path)], depends=INCLUDES, optional=True)
        for path in SOURCES
    ]
)
