"""headrace beside Apache Kafka, measured in one run: `make bench`. bench/README.md says how to read the result."""
