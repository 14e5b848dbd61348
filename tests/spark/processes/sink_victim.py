"""A driver that is there to be killed: a streaming query from a folder of text files to a topic, one file a batch.

Run as `python -m tests.spark.processes.sink_victim BOOTSTRAP TOPIC FILES CHECKPOINT`; ends when all files are written.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession


def main(bootstrap: str, topic: str, files: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.driver.memory", "512m")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("OFF")
    lines = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1).text(files)
    query = (
        lines.repartition(2)
        .selectExpr("value AS key", "value")
        .writeStream.format("headrace")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("topic", topic)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
