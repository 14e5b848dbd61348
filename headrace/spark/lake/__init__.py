"""A lake of Parquet files with a manifest: the history of topics, longer than any retention."""
