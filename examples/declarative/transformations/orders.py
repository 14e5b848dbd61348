"""A streaming table fed by a topic, and a view on it: headrace in Spark's declarative pipelines."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import sum as sum_of

spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    return (
        spark.readStream.format("headrace")
        .option("kafka.bootstrap.servers", os.environ.get("HEADRACE_BROKER", "127.0.0.1:9092"))
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("CAST(key AS STRING) AS customer", "CAST(CAST(value AS STRING) AS DOUBLE) AS amount", "timestamp")
    )


@dp.materialized_view
def totals() -> DataFrame:
    return spark.read.table("orders").groupBy("customer").agg(sum_of("amount").alias("total"))
