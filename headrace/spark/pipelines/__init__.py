"""Pipelines: ordinary PySpark applications, each with a typed configuration."""
