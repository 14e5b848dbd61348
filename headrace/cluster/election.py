"""The election rules: who is in sync, who may lead, and who leads a partition. Pure: from the stored state and the live
brokers to the next state.

Two rules are the basis of everything else:

- Nothing is committed without every member of the stored ISR. Nothing at all is committed while the ISR has fewer
  members than `PartitionImage.enough_in_sync` requires, or while there are eligible leader replicas (ELR, KIP-966).
- Therefore every member of the ISR has all committed records. So has a member that leaves an ISR which is then too
  small, for as long as the ISR stays too small. These members are kept as the ELR.

Both rules apply to one start of a broker, not to its id: a process that died may have lost what was not on its disk
yet. So an entry is (broker, broker epoch). It is trusted while the broker is alive and has lost nothing since that
epoch (`BrokerImage.unbroken_since`). If a broker syncs before it acknowledges, a crash loses nothing committed; only
replacing its disk does (`disk_since`).

Order of election: ISR, then trusted ELR. If no replica can be trusted any more, `last_known` lists the last trusted
ones. Once all of them are back, or if unclean elections are allowed, the longest log is chosen (`recover`): the
controller asks the replicas for the ends of their logs. A replica that left an ISR that is still large enough stays in
`last_known` for a while, because the remaining members may already be dead without anybody knowing (leavers.py). Called
by the controller, and by leaders through `isr_writes`. The next state has the version of the state it follows; whoever
writes it raises the version.
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
Entry = tuple[int, int]  # a broker and its broker epoch
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
    """The state that follows from these brokers; the same object if nothing changes.

    Members that died or were restarted leave the ISR immediately. The leader changes only if it is one of them, and
    then the leader epoch rises.
    """
    kept = [entry for entry in entries(partition) if _lives_on(entry, alive)]
    after = _with_members(partition, kept, alive, terms)
    if after.leader not in after.isr:
        after = _led(after, alive, terms)
    return partition if after == partition else after


def without_leavers(partition: PartitionImage, alive: Alive) -> PartitionImage | None:
    """The partition without the replicas that left its ISR; None if it waits for them, or may have to."""
    stayed = entries(partition)
    if not stayed or partition.elr or not all(_lives_on(entry, alive) for entry in stayed):
        return None
    return replace(partition, last_known=())


def preferred(partition: PartitionImage, alive: Alive) -> PartitionImage | None:
    """The preferred replica becomes leader, if it is alive and in sync; otherwise None."""
    first = partition.replicas[0]
    if not any(entry[0] == first and _lives_on(entry, alive) for entry in entries(partition)):
        return None
    return _next_leader(partition, first)


def can_recover(partition: PartitionImage, alive: Alive, *, unclean: bool) -> bool:
    """Whether a partition without a leader may elect the longest log among its live replicas."""
    if partition.leader != NO_LEADER or not any(broker in alive for broker in partition.replicas):
        return False
    everybody_is_back = not partition.elr and all(broker in alive for broker in partition.last_known)
    return unclean or (bool(partition.last_known) and everybody_is_back)


def recover(
    partition: PartitionImage, ends: Mapping[int, LogEnd], alive: Alive, *, unclean: bool
) -> PartitionImage | None:
    """The replica with the longest log becomes leader; `ends` are the answers. None while a required one is missing."""
    answered = [broker for broker in partition.replicas if broker in ends and broker in alive]
    if not answered or not (unclean or set(partition.last_known) <= set(answered)):
        return None
    # If logs are equal, a last known member of the ISR wins, then the first in the replica list.
    longest = max(answered, key=lambda broker: (ends[broker], broker in partition.last_known))
    risky = not set(partition.last_known) <= set(answered) or bool(partition.elr)
    state = _with_entries(partition, [(longest, alive[longest].epoch)])
    state = replace(state, elr=(), last_known=(), recovering=risky)
    return _next_leader(state, longest)


def with_isr(partition: PartitionImage, wanted: Sequence[Entry], terms: Terms) -> PartitionImage:
    """The state after its leader changed the ISR: members that left a set that is now too small become eligible."""
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
    """With this ISR, and with the ELR and `last_known` that follow from it."""
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
    """Whether the broker is alive in exactly this start."""
    found = alive.get(entry[0])
    return found is not None and found.epoch == entry[1]


def _trusted(entry: Entry, alive: Alive, partition: PartitionImage, terms: Terms) -> bool:
    return entry[0] in alive and _may_be_whole(entry, alive, partition, terms)


def _may_be_whole(entry: Entry, alive: Alive, partition: PartitionImage, terms: Terms) -> bool:
    """Whether this replica still has what it had at the epoch of the entry; assumed while the broker is down."""
    found = alive.get(entry[0])
    if found is None or len(partition.replicas) == 1:  # one replica: there is nobody who could have more
        return True
    return (found.disk_since if entry[0] in terms.synced else found.unbroken_since) <= entry[1]
