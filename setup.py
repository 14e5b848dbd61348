"""Builds the one compiled module; where there is no compiler, its pure-Python twin serves instead."""

from setuptools import Extension, setup

setup(ext_modules=[Extension("headrace.wire._records", ["headrace/wire/_records.pyx"], optional=True)])
