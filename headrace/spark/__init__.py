"""headrace in PySpark: a source and a sink for Spark's DataFrames, and pipelines made of them."""
