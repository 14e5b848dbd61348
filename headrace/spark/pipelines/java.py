"""Checks for a Java that Spark can run on, before Spark starts, because Spark's own error is many pages long."""

from __future__ import annotations

import os
import re
import subprocess

from headrace.model.failure import Failure

OLDEST = 17
VERSION = re.compile(r'version "(?:1\.)?(\d+)')


def check_java() -> None:
    """Raise a Failure, with what to do, unless the Java that Spark would start exists and is new enough."""
    home = os.environ.get("JAVA_HOME")
    command = f"{home}/bin/java" if home else "java"
    try:
        done = subprocess.run([command, "-version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        where = f"JAVA_HOME is {home}, but {command} does not run" if home else "there is no java on the PATH"
        raise Failure(f"Spark needs Java {OLDEST} or newer: {where}; install openjdk-17-jre-headless") from None
    found = VERSION.search(done.stderr + done.stdout)
    if found is None or int(found[1]) < OLDEST:
        version = f"Java {found[1]}" if found else "of an unknown version"
        raise Failure(
            f"Spark needs Java {OLDEST} or newer, {command} is {version}: install openjdk-17-jre-headless, "
            "or set JAVA_HOME"
        )
