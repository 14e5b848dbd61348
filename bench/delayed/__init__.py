"""The bench's section "delays": headrace, NATS JetStream and Redis on the same delayed messages."""
