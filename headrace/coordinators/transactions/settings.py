"""The settings of transactions, with Kafka's names beside them, and how they follow from a broker's."""

from __future__ import annotations

from msgspec import Struct

from headrace.model.broker_config import BrokerConfig


class TransactionSettings(Struct, frozen=True):
    max_timeout_ms: int = 900_000  # transaction.max.timeout.ms
    id_expiration_ms: int = 7 * 24 * 3600 * 1000  # transactional.id.expiration.ms
    max_state_bytes: int = 16 << 20  # headrace.transaction.state.max.bytes
    expiry_check_interval_ms: int = 3_600_000  # transaction.remove.expired.transaction.cleanup.interval.ms


def transaction_settings(config: BrokerConfig) -> TransactionSettings:
    return TransactionSettings(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        max_state_bytes=config.transaction_state_max_bytes,
        expiry_check_interval_ms=config.transaction_expiry_interval_ms,
    )
