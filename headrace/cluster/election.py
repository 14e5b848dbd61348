"""Who is in sync, who may lead, and who leads a partition. Pure: from the state as stored and who is alive to the next.

Two rules carry everything else:

- Nothing is committed without every member of the stored ISR, and nothing at all while the ISR has fewer members than
  `PartitionImage.enough_in_sync` asks for or while there are eligible leader replicas (ELR, KIP-966).
- Therefore every member of the ISR has all that was committed; and so has a member that leaves an ISR which then is too
  small, for as long as the ISR stays too small. Those are kept as the ELR.

Both hold for a start of a broker, not for its number: a process that died may have lost what it had not yet written to
disk. So an entry is (broker, broker epoch), and it is trusted while the broker is alive and has lost nothing since that
epoch (`BrokerImage.unbroken_since`). Where a broker syncs before it acknowledges, a crash loses nothing committed; only
another disk in the place of the one it had does (`disk_since`).

Order of election: ISR, then trusted ELR. When nobody can be trusted any more, `last_known` names those who were; once
all of them are back, or where unclean elections are allowed, the longest log leads (`recover`): the controller asks
the replicas for it. Who left an ISR that is still large enough is among them for a while: those who stayed may be dead
already, and nobody may know it yet (leavers.py). Callers: the controller, and leaders through `isr_writes`. A next
state still has the version of the one it follows; who writes it raises that.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from headrace.model import topic_config
from headrace.model.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from headrace.model.settings_in_force import BrokerFile

_MIN_ISR = topic_config.BY_NAME["min.insync.replicas"]
_FLUSH = topic_config.BY_NAME["headrace.flush"]
_UNCLEAN = topic_config.BY_NAME["unclean.leader.election.enable"]

Alive = Mapping[int, BrokerImage]
Entry = tuple[int, int]  # a broker and the epoch of its start that is meant
LogEnd = tuple[int, int]  # the last leader epoch in a log, and where the log ends: longer logs compare greater


class Terms(Struct, frozen=True):
    """What the settings of a topic say about elections."""

    min_isr: int = 1
    synced: frozenset[int] = frozenset()  # live brokers with headrace.flush=fsync: they sync before they acknowledge
    unclean: bool = False  # may a replica lead that may lack committed records


def terms_of(topic: TopicImage, image: ClusterImage, file: BrokerFile) -> Terms:
    """The settings in force for this topic. `file` is that of the broker which asks: the controller, or a leader.

    Whether a replica synced what it acknowledged depends on its own broker, so `synced` is judged broker by broker.
    The other two are those of the broker that asks, as in Kafka: a leader changes the ISR by the min.insync.replicas
    by which it commits, and a controller elects by its own settings. The two may differ without harm, since a leader
    commits nothing while there is an ELR, whoever wrote it.
    """
    own = file.in_force(image)
    return Terms(
        topic_config.value_in_force(_MIN_ISR, topic.settings, own),
        _synced(topic, image, file),
        topic_config.value_in_force(_UNCLEAN, topic.settings, own),
    )


def _synced(topic: TopicImage, image: ClusterImage, file: BrokerFile) -> frozenset[int]:
    return frozenset(
        broker
        for broker in image.brokers
        if topic_config.value_in_force(_FLUSH, topic.settings, file.in_force(image, broker)) == "fsync"
    )


def needs_leader(partition: PartitionImage, alive: Alive) -> bool:
    """There is no leader, or it is not the same start of that broker that was elected."""
    return not any(entry[0] == partition.leader and _lives_on(entry, alive) for entry in entries(partition))


def settled(partition: PartitionImage, alive: Alive, terms: Terms) -> PartitionImage:
    """The state that these brokers give rise to; the very same if nothing changes.

    Members that died or were started again leave the ISR at once. The leader changes only if it is one of them, and
    the leader epoch rises with it.
    """
    kept = [entry for entry in entries(partition) if _lives_on(entry, alive)]
    after = _with_members(partition, kept, alive, terms)
    if after.leader not in after.isr:
        after = _led(after, alive, terms)
    return partition if after == partition else after


def without_leavers(partition: PartitionImage, alive: Alive) -> PartitionImage | None:
    """The same partition without those who left its ISR; None if they are what it waits for, or may have to."""
    stayed = entries(partition)
    if not stayed or partition.elr or not all(_lives_on(entry, alive) for entry in stayed):
        return None
    return replace(partition, last_known=())


def preferred(partition: PartitionImage, alive: Alive) -> PartitionImage | None:
    """The first replica of the plan leads, if it is alive and in sync; None if it cannot."""
    first = partition.replicas[0]
    if not any(entry[0] == first and _lives_on(entry, alive) for entry in entries(partition)):
        return None
    return _next_leader(partition, first)


def can_recover(partition: PartitionImage, alive: Alive, *, unclean: bool) -> bool:
    """Whether a partition that nobody leads may ask for the longest log among its live replicas."""
    if partition.leader != NO_LEADER or not any(broker in alive for broker in partition.replicas):
        return False
    everybody_is_back = not partition.elr and all(broker in alive for broker in partition.last_known)
    return unclean or (bool(partition.last_known) and everybody_is_back)


def recover(
    partition: PartitionImage, ends: Mapping[int, LogEnd], alive: Alive, *, unclean: bool
) -> PartitionImage | None:
    """The replica with the longest log leads; `ends` are the answers. None while one is missing that is needed."""
    answered = [broker for broker in partition.replicas if broker in ends and broker in alive]
    if not answered or not (unclean or set(partition.last_known) <= set(answered)):
        return None
    # Of equals one that was in sync last, then the first of the plan.
    longest = max(answered, key=lambda broker: (ends[broker], broker in partition.last_known))
    risky = not set(partition.last_known) <= set(answered) or bool(partition.elr)
    state = _with_entries(partition, [(longest, alive[longest].epoch)])
    state = replace(state, elr=(), last_known=(), recovering=risky)
    return _next_leader(state, longest)


def with_isr(partition: PartitionImage, wanted: Sequence[Entry], terms: Terms) -> PartitionImage:
    """The state after its leader changed the ISR: who left a set that is now too small may still lead."""
    after = _with_members(partition, wanted, {}, terms)
    if after.leader not in after.isr and after.leader in dict(after.elr):  # its disk failed: it does not trust itself
        elr = tuple(entry for entry in after.elr if entry[0] != after.leader)
        after = replace(after, elr=elr, last_known=(after.leader, *after.last_known))
    return replace(after, recovering=partition.recovering and len(after.isr) < 2)


def first_state(index: int, replicas: tuple[int, ...], alive: Alive) -> PartitionImage:
    """A new partition: empty, so every live replica is in sync, and the first of them leads."""
    isr = tuple(broker for broker in replicas if broker in alive)
    epochs = tuple(alive[broker].epoch for broker in isr)
    return PartitionImage(index, replicas, isr, isr[0] if isr else NO_LEADER, 0, 0, epochs)


def entries(partition: PartitionImage) -> list[Entry]:
    """The ISR as entries."""
    return list(zip(partition.isr, partition.isr_epochs, strict=True))


def _with_members(partition: PartitionImage, kept: Sequence[Entry], alive: Alive, terms: Terms) -> PartitionImage:
    """With this ISR, and with the ELR and the last known that follow from it."""
    after = _with_entries(partition, kept)
    present = {broker for broker, _ in kept}
    left = [entry for entry in entries(partition) if entry[0] not in present]
    if len(kept) >= partition.enough_in_sync(terms.min_isr):
        leavers = dict.fromkeys((*partition.last_known, *(broker for broker, _ in left)))
        known = tuple(broker for broker in leavers if broker not in present and broker in partition.replicas)
        return replace(after, elr=(), last_known=known)
    eligible = [
        entry
        for entry in dict([*partition.elr, *left]).items()
        if entry[0] not in present and entry[0] in partition.replicas
    ]
    broken = [entry[0] for entry in eligible if not _may_be_whole(entry, alive, partition, terms)]
    untrusted = [broker for broker in (*partition.last_known, *broken) if broker not in present]
    untrusted.sort(key=lambda broker: broker != partition.leader)  # the leader first, the others as they came
    return replace(
        after,
        elr=tuple(entry for entry in eligible if entry[0] not in broken),
        last_known=tuple(dict.fromkeys(untrusted)),
    )


def _led(partition: PartitionImage, alive: Alive, terms: Terms) -> PartitionImage:
    """With a leader from the ISR; or, if that is empty, from the ELR; or with none."""
    stays_first = sorted(partition.replicas, key=lambda broker: broker in partition.removing)
    for broker in stays_first:
        if broker in partition.isr:
            return _next_leader(partition, broker)
    eligible = dict(partition.elr)
    for broker in stays_first:
        if broker in eligible and _trusted((broker, eligible[broker]), alive, partition, terms):
            alone = _with_members(partition, [(broker, alive[broker].epoch)], alive, terms)
            return _next_leader(alone, broker)
    return partition if partition.leader == NO_LEADER else _next_leader(partition, NO_LEADER)


def _next_leader(partition: PartitionImage, leader: int) -> PartitionImage:
    return replace(partition, leader=leader, leader_epoch=partition.leader_epoch + 1)


def _with_entries(partition: PartitionImage, kept: Collection[Entry]) -> PartitionImage:
    return replace(partition, isr=tuple(broker for broker, _ in kept), isr_epochs=tuple(epoch for _, epoch in kept))


def _lives_on(entry: Entry, alive: Alive) -> bool:
    """The very start of the broker that is meant is alive."""
    found = alive.get(entry[0])
    return found is not None and found.epoch == entry[1]


def _trusted(entry: Entry, alive: Alive, partition: PartitionImage, terms: Terms) -> bool:
    return entry[0] in alive and _may_be_whole(entry, alive, partition, terms)


def _may_be_whole(entry: Entry, alive: Alive, partition: PartitionImage, terms: Terms) -> bool:
    """What this replica had at the epoch of the entry it still has; while it is away, that cannot be denied."""
    found = alive.get(entry[0])
    if found is None or len(partition.replicas) == 1:  # one replica: there is nobody who could have more
        return True
    return (found.disk_since if entry[0] in terms.synced else found.unbroken_since) <= entry[1]
