"""Extracts the one-line cause from Spark's errors, which are pages of Java and Python stack traces.

Pure. Called by launch.py and watching.py. It looks for a Failure of headrace first, then for Spark's error class with
its message, then for the last exception of any kind.
"""

from __future__ import annotations

import re

OURS = re.compile(r"headrace(?:\.\w+)+: (.+)")
RAISED = re.compile(r"^(?:[\w.$]+\.)?(\w+(?:Error|Exception)): (.+)$", re.MULTILINE)
# A lookahead, because one class may be within the message of another.
CLASSED = re.compile(r"(?=\[([A-Z][A-Z0-9_.]+)\] ?(.+?)(?: SQLSTATE:.*)?$)", re.MULTILINE)
WRAPPERS = {"STREAM_FAILED", "PYTHON_DATA_SOURCE_ERROR", "FOREACH_BATCH_USER_FUNCTION_ERROR"}


def plain_error(error: BaseException | str) -> str:
    text = str(error)
    ours = OURS.findall(text)
    if ours:
        return str(ours[-1]).strip().rstrip('"')
    for name, message in CLASSED.findall(text):
        if name not in WRAPPERS:
            return f"{message.strip()} [{name}]"
    raised = [
        (name, message) for name, message in RAISED.findall(text) if name not in ("SparkException", "Py4JJavaError")
    ]
    if raised:
        return f"{raised[-1][1].strip()} ({raised[-1][0]})"
    return next((line.strip() for line in text.splitlines() if line.strip()), type(error).__name__)
