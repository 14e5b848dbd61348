"""The stories that a client is asked to tell: the rows of docs/compatibility.md.

Every suite, in whatever language, names the story it proves by one of these slugs: the pytest suites through the
`story` marker, the others by printing `STORY <slug> PASS` or `STORY <slug> FAIL <why>`. A slug that is not listed here
is an error in the suite, so the table and the tests cannot drift apart.
"""

import pytest

STORIES: dict[str, str] = {
    "round-trip": "Keys and values come back: text, binary, empty, null",
    "compression": "Every compression type the client has",
    "headers": "Headers in order, also repeated ones (and null ones where the client takes them)",
    "timestamps": "The producer's timestamps",
    "large-message": "A message of 900 KB",
    "acks": "acks 0, 1 and all",
    "idempotence": "The idempotent producer",
    "transactions": "Committed transactions are read as a whole, aborted ones never",
    "transactional-offsets": "Offsets that are committed with a transaction, or not at all",
    "fencing": "A second producer of one transactional id fences the first",
    "transactions-admin": "List, describe and end transactions from outside",
    "key-order": "Order is kept per key",
    "partitioning": "One key, one partition; chosen partitions",
    "many-messages": "Many messages in batches",
    "oversize": "A message over the topic's limit is refused",
    "log-append-time": "Topics with LogAppendTime",
    "seek": "Assign, and seek to start, end and an offset",
    "seek-by-time": "Offsets for times, and seek to them",
    "pause": "Pause and resume",
    "watermarks": "First and last offset of a partition",
    "commit": "Commit, and resume from there",
    "group-split": "Members of a group split the partitions",
    "group-leave": "A member leaves, another one comes",
    "range": "Assignor: range",
    "roundrobin": "Assignor: round robin",
    "sticky": "Assignor: sticky",
    "cooperative-sticky": "Assignor: cooperative sticky",
    "static-member": "A static member restarts without a rebalance",
    "regex": "A regex subscription finds a new topic",
    "partition-growth": "A group takes over added partitions",
    "new-protocol": "New group protocol: members split, hand over, resume",
    "new-protocol-static": "New group protocol: a static member restarts without a rebalance",
    "new-protocol-regex": "New group protocol: a regex that the broker resolves finds a new topic",
    "protocol-move": "A group with members moves to the new protocol, and back",
    "describe-groups": "List and describe groups",
    "delete-group": "Delete a group",
    "delete-offsets": "Delete a group's offsets",
    "alter-offsets": "Alter a group's offsets",
    "topics": "Create, list, describe and delete topics",
    "topic-errors": "Bad names, existing topics, bad settings, too many replicas",
    "partitions": "Add partitions",
    "configs": "Describe and alter configs",
    "incremental-configs": "Incrementally alter configs",
    "cluster": "Describe the cluster",
    "delete-records": "Delete records",
    "dropped-records": "Read past offsets whose records deduplication or compaction has dropped, to a lag of 0",
    "delayed": "Delayed records come when they are due and once, beside others, to a lag of 0",
    "delayed-transactions": "Delayed records of a transaction come after its commit, and never after its abort",
    "cancelled": "Cancel delayed records by id and by key; wrong delays are refused",
    "scheduled": "Schedules (cron): move one to now; it comes, and stays",
    "views": "Views by tag: create, read in groups to a lag of 0; produce is refused",
    "view-transactions": "Views of transactions: aborted records are not read as committed ones",
    "list-offsets": "List offsets: earliest, latest, largest timestamp",
    "unknown-topic": "A topic that does not exist is said not to exist",
    "recreated-topic": "A topic deleted and made again under a live consumer",
    "streams": "Kafka Streams: words counted exactly once, by two instances of which one stops",
}


def story(slug: str) -> pytest.MarkDecorator:
    """Marks a test as proof of one row of the table."""
    if slug not in STORIES:
        raise ValueError(
            f"no story is called {slug!r}: add it to tests/clients/stories.py or use one of {', '.join(STORIES)}"
        )
    return pytest.mark.story(slug)
