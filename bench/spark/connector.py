"""The jars of Spark's own Kafka connector, fetched once by Maven into bench/.cache, and a Spark that has them.

Called by the bench and by the client tests, which run the connector against headrace.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bench.peers import CACHE, PeerMissing

ROOT = Path(__file__).resolve().parents[2]
VERSION = "4.2.0"
_JARS = CACHE / f"spark-connector-{VERSION}"
_FETCH_SECONDS = 600


def jars() -> list[Path]:
    """The jars that the connector needs besides those of the pyspark wheel; raises PeerMissing."""
    if not (_JARS / ".complete").exists():
        if not shutil.which("mvn"):
            raise PeerMissing("there is no mvn to fetch Spark's Kafka connector: install it, e.g. `apt install maven`")
        print(f"fetching Spark's Kafka connector {VERSION} ...", file=sys.stderr)
        pom = Path(__file__).with_name("connector.pom.xml")
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={_JARS}"]
        command = ["mvn", "-q", "-B", "-f", str(pom), *copy]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
        if done.returncode != 0:
            last = (done.stdout + done.stderr).strip().splitlines()[-1:]
            raise PeerMissing(f"Maven could not fetch Spark's Kafka connector: {''.join(last)}")
        (_JARS / ".complete").touch()
    return sorted(_JARS.glob("*.jar"))


def session(jars: list[Path], memory: str) -> SparkSession:
    """Spark on this machine's two cores, quiet, with these jars, and with headrace where its workers find it."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", ",".join(map(str, jars)))
        .config("spark.driver.memory", memory)
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark
