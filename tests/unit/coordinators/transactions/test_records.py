"""The records of `__transaction_state`: byte for byte what Kafka writes, and garbage that is skipped."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinators.transactions.records import read_key, read_transaction, tombstone, transaction_record
from headrace.coordinators.transactions.settings import TransactionSettings
from headrace.coordinators.transactions.shard import TransactionShard
from headrace.coordinators.transactions.transaction import State, Transaction
from headrace.wire.errors import Malformed

OPEN = Transaction(
    producer_id=1000,
    epoch=3,
    timeout_ms=60_000,
    state=State.ONGOING,
    partitions=frozenset({("t", 1), ("t", 0), ("u", 7)}),
    start_ms=1_700_000_000_000,
    updated_ms=1_700_000_000_500,
)

longs = st.integers(-1, 2**63 - 1)
epochs = st.integers(-1, 32_767)
transactions = st.builds(
    Transaction,
    producer_id=longs,
    epoch=epochs,
    last_epoch=epochs,
    previous_producer_id=longs,
    next_producer_id=longs,
    timeout_ms=st.integers(0, 2**31 - 1),
    state=st.sampled_from(list(State)).filter(lambda state: state is not State.EMPTY),
    partitions=st.frozensets(st.tuples(st.text(max_size=20), st.integers(0, 2**31 - 1)), max_size=8),
    start_ms=longs,
    updated_ms=longs,
    version=st.integers(0, 2),
    timed_out=st.booleans(),
)


def test_an_open_transaction_has_kafkas_bytes() -> None:
    key, value = transaction_record("x", OPEN)
    assert key == b"\x00\x00" + b"\x00\x01x"
    assert value == (
        b"\x00\x01"  # version
        + struct.pack(">qhib", 1000, 3, 60_000, 1)
        + b"\x03"  # two topics
        + (b"\x02t" + b"\x03" + struct.pack(">ii", 0, 1) + b"\x00")
        + (b"\x02u" + b"\x02" + struct.pack(">i", 7) + b"\x00")
        + struct.pack(">qq", 1_700_000_000_500, 1_700_000_000_000)
        + b"\x00"  # no tagged fields
    )


def test_an_id_without_a_transaction_has_null_for_its_partitions() -> None:
    _, value = transaction_record("x", Transaction(1000, 0, timeout_ms=1, updated_ms=2))
    assert value == b"\x00\x01" + struct.pack(">qhib", 1000, 0, 1, 0) + b"\x00" + struct.pack(">qq", 2, -1) + b"\x00"


def test_ids_in_waiting_and_the_clients_version_are_tagged_fields() -> None:
    _, value = transaction_record("x", Transaction(1, 2, previous_producer_id=7, next_producer_id=8, version=2))
    assert value is not None
    assert value.endswith(
        b"\x03" + b"\x00\x08" + struct.pack(">q", 7) + b"\x01\x08" + struct.pack(">q", 8) + b"\x02\x02\x00\x02"
    )


def test_the_older_version_of_kafka_before_4_is_read() -> None:
    value = (
        struct.pack(">hqhib", 0, 1000, 3, 60_000, 1)
        + struct.pack(">i", 2)
        + (b"\x00\x01t" + struct.pack(">iii", 2, 0, 1))
        + (b"\x00\x01u" + struct.pack(">ii", 1, 7))
        + struct.pack(">qq", 1_700_000_000_500, 1_700_000_000_000)
    )
    assert read_transaction(value) == OPEN
    empty = struct.pack(">hqhib", 0, 1000, 3, 60_000, 0) + struct.pack(">i", -1) + struct.pack(">qq", 1, -1)
    assert read_transaction(empty).partitions == frozenset()


@given(st.text(max_size=50), transactions)
def test_what_is_written_is_read(name: str, transaction: Transaction) -> None:
    key, value = transaction_record(name, transaction)
    assert value is not None
    assert (read_key(key), read_transaction(value)) == (name, transaction)
    assert tombstone(name) == (key, None)


def test_a_tagged_field_of_a_newer_kafka_is_left_alone() -> None:
    _, value = transaction_record("x", OPEN)
    assert value is not None
    assert read_transaction(value[:-1] + b"\x01\x03\x02\x00\x05") == OPEN


@given(st.binary(max_size=60), st.none() | st.binary(max_size=60))
def test_garbage_costs_nobody_else_anything(key: bytes, value: bytes | None) -> None:
    shard = TransactionShard(TransactionSettings())
    shard.apply(*transaction_record("x", OPEN))
    shard.apply(key, value)
    if key != transaction_record("x", OPEN)[0]:
        assert shard.transactions["x"] == OPEN


@pytest.mark.parametrize("state", [6, 7, -1])
def test_states_that_are_not_kept_are_malformed(state: int) -> None:
    _, value = transaction_record("x", OPEN)
    assert value is not None
    with pytest.raises(Malformed):
        read_transaction(value[:16] + struct.pack(">b", state) + value[17:])
