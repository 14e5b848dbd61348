"""Where Spark looks for format("headrace"): it imports `pyspark_<format>` and takes its DefaultSource."""

from headrace.spark.source import HeadraceSource as DefaultSource

__all__ = ["DefaultSource"]
