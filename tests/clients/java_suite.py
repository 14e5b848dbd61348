"""Where the Java client's stories and the jars of Kafka's tools are built, by Maven, into a folder git does not see."""

import subprocess
from pathlib import Path

PROJECT = Path(__file__).parent / "java"
TARGET = PROJECT / "target"
CLASSPATH = f"{TARGET / 'classes'}:{TARGET / 'dependency'}/*"


def build() -> str | None:
    """Compiles the stories and fetches the jars, unless they are newer than their sources; says what went wrong."""
    stamp = TARGET / "built"
    sources = [PROJECT / "pom.xml", *PROJECT.glob("src/**/*.java")]
    if stamp.exists() and all(stamp.stat().st_mtime > source.stat().st_mtime for source in sources):
        return None
    command = ["mvn", "-q", "-B", "compile", "dependency:copy-dependencies"]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, timeout=900, check=False)
    if done.returncode != 0:
        return f"mvn could not build tests/clients/java: {(done.stdout + done.stderr)[-800:]}"
    stamp.touch()
    return None
