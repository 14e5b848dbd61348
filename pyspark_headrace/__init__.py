"""Where Spark looks for format("headrace"): it imports `pyspark_<format>` and takes its DefaultSource."""

from headrace.spark.data_source import HeadraceDataSource as DefaultSource

__all__ = ["DefaultSource"]
