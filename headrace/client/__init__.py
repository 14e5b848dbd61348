"""The way from here to a broker: what brokers and Spark executors need of a Kafka client, and no more."""
