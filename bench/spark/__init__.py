"""headrace's Spark source and sink beside Spark's own Kafka connector."""
