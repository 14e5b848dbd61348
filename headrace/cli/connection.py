"""Connections to brokers: Kafka clients without log output, a quick reachability check, and errors as sentences.

Called by every command that talks to a broker; the only module that makes admin clients and sets client settings.
Invariants: librdkafka never writes to the user's terminal, and an unreachable broker is reported in seconds, not
minutes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headrace.cli.options import parse_brokers
from headrace.model.failure import Failure

if TYPE_CHECKING:
    from concurrent.futures import Future

    from confluent_kafka import KafkaError, KafkaException

    from headrace.cli.admin_nouns import AdminClient

CONNECT_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 5.0  # for the first response: after this, it is not a Kafka broker
REQUEST_TIMEOUT_S = 20.0  # for later responses: deleting ten thousand partitions may take a while


def client_settings(broker: str, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Settings of every client: the broker's address, and no log output of librdkafka (log_level 0)."""
    return {
        "bootstrap.servers": broker,
        "client.id": "headrace-cli",
        "log_level": 0,
        "log.connection.close": False,
        "error_cb": ignore_error,
        "broker.address.family": "any",
        "socket.connection.setup.timeout.ms": 5000,
        **(extra or {}),
    }


def ignore_error(_error: "KafkaError") -> None:
    """Ignores connection errors, because the failed request reports them."""


def open_admin(broker: str) -> "AdminClient":
    """An admin client of a broker that has answered a request."""
    reach(broker)
    from confluent_kafka import KafkaException

    from headrace.cli.admin_nouns import AdminClient

    admin = AdminClient(client_settings(broker))
    try:
        admin.describe_cluster(request_timeout=ANSWER_TIMEOUT_S).result(ANSWER_TIMEOUT_S + 1)
    except (KafkaException, TimeoutError):
        raise Failure(
            f"something listens at {broker}, but does not answer as a Kafka broker within "
            f"{ANSWER_TIMEOUT_S:.0f} seconds: is that the port of a broker, and is its advertised "
            "address reachable from here?"
        ) from None
    return admin


def reach(broker: str) -> None:
    """Raise a one-line Failure unless an address of the list accepts a connection."""
    import socket

    reason = ""
    for host, port in parse_brokers(broker):
        try:
            socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
            return
        except OSError as error:
            reason = (error.strerror or str(error) or "timed out").lower()
    raise Failure(
        f"no broker answers at {broker}: is `headrace serve` running? "
        f"Set its address with --broker HOST:PORT or HEADRACE_BROKER ({reason})"
    )


def settle(future: "Future[Any]", doing: str) -> Any:
    """The result of an admin request; `doing` begins the error message if it fails."""
    from confluent_kafka import KafkaException

    try:
        return future.result(REQUEST_TIMEOUT_S + 5)
    except KafkaException as error:
        raise Failure(f"{doing}: {reason_of(error)}") from None
    except TimeoutError:
        raise Failure(f"{doing}: no answer from the broker within {REQUEST_TIMEOUT_S:.0f} seconds") from None


def reason_of(error: "KafkaException") -> str:
    """Why a request failed, as the client or the broker says."""
    from confluent_kafka import KafkaError

    cause = error.args[0] if error.args else error
    return plain_words(cause) if isinstance(cause, KafkaError) else str(cause)


def plain_words(error: "KafkaError") -> str:
    """The text of an error, without librdkafka's prefix that says where it was detected."""
    from confluent_kafka import KafkaError

    if error.code() == KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT:
        return "its messages are not in the order of times, so they cannot be looked up by time"
    return error.str().removeprefix("Broker: ").removeprefix("Local: ")


def error_code(error: "KafkaException") -> int | None:
    from confluent_kafka import KafkaError

    cause = error.args[0] if error.args else None
    return cause.code() if isinstance(cause, KafkaError) else None
