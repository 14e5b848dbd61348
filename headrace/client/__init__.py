"""A minimal Kafka client: what brokers and Spark executors need to talk to brokers, and no more."""
