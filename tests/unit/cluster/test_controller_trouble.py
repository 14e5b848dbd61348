"""Brokers come, go, crash and lose touch at random; whatever is written about partitions keeps the rules."""

from __future__ import annotations

import asyncio
from random import Random

import pytest
from msgspec.structs import replace

from headrace.cluster import znodes
from headrace.cluster.topic_changes import NewTopic
from headrace.cluster.tree import Edit
from headrace.model.image import NO_LEADER
from headrace.wire.errors import KafkaError
from tests.unit.cluster.small_cluster import Cluster, tell

PARTITIONS = 4
PLACES = [("orders", index) for index in range(PARTITIONS)]


class Audit:
    """Holds every write to a partition against the one before."""

    def __init__(self) -> None:
        self.elections = 0
        self.wrong: list[str] = []

    def __call__(self, edits: list[Edit]) -> None:
        for edit in edits:
            if edit.path.count("/") == 3 and edit.path.startswith(znodes.PARTITIONS) and edit.before and edit.after:
                before = znodes.decode_partition(edit.path, edit.before.data)
                after = znodes.decode_partition(edit.path, edit.after.data)
                self._compare(before, after)

    def _compare(self, before: znodes.PartitionState, after: znodes.PartitionState) -> None:
        members, eligible = dict(after.isr), dict(after.elr)
        led_on = (before.leader, dict(before.isr).get(before.leader)) == (after.leader, members.get(after.leader))
        self.elections += not led_on
        trusted = {broker for broker, _ in (*before.isr, *before.elr)} | set(before.last_known)
        rules = {
            "the ISR is part of the replicas": set(members) | set(eligible) <= set(after.replicas),
            "nobody is in sync and eligible": not set(members) & set(eligible),
            "the leader is in sync": after.leader in members or (after.leader == NO_LEADER and not members),
            "the epoch rises with the leader": after.leader_epoch == before.leader_epoch + (not led_on),
            "a leader had everything": after.leader in trusted | {NO_LEADER},
        }
        self.wrong += [f"{rule}: {before} -> {after}" for rule, holds in rules.items() if not holds]


async def one_trouble(cluster: Cluster, chance: Random, kept: dict[int, int | None]) -> None:
    number = chance.randint(1, 4)
    alive = number in cluster.members
    what = chance.choice(["kill", "stop", "start", "start", "reply", "break", "isr", "isr", "isr", "wait"])
    if what in ("kill", "stop") and alive:
        if what == "stop":
            kept[number] = await cluster.stop(number)
        else:
            kept[number] = None
            await cluster.kill(number)
    elif what == "start" and not alive:
        await cluster.start(number, kept_epoch=kept.get(number))
    elif what == "reply":
        cluster.ensemble.lose_reply(f"broker-{number}")
    elif what == "break":
        cluster.ensemble.break_connection(f"broker-{number}")
    elif what == "isr" and alive:
        await change_isr(cluster, number, chance)
    else:
        await asyncio.sleep(chance.random() * 2)


async def change_isr(cluster: Cluster, number: int, chance: Random) -> None:
    """As a leader does: some leave, and all who live and are not in it join."""
    member = cluster.members[number]
    topic = member.view.image.topics.get("orders")
    for partition in topic.partitions if topic is not None else ():
        entries = dict(zip(partition.isr, partition.isr_epochs, strict=True))
        if partition.leader != number or entries.get(number) != member.epoch:
            continue
        kept = {broker: epoch for broker, epoch in entries.items() if broker == number or chance.random() < 0.7}
        joins = {
            broker: image.epoch
            for broker, image in member.view.image.brokers.items()
            if broker in partition.replicas and broker not in entries and chance.random() < 0.7
        }
        wanted = kept | joins
        try:
            state = replace(partition, isr=tuple(wanted), isr_epochs=tuple(wanted.values()))
            await member.isr.change("orders", state, list(joins.items()))
        except KafkaError:
            pass  # it does not lead any more


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_every_write_keeps_the_rules_and_all_is_led_in_the_end(seed: int) -> None:
    audit = Audit()

    async def story(cluster: Cluster) -> None:
        cluster.ensemble.on_write(audit)
        cluster.ends = {number: dict.fromkeys(PLACES, (0, 10)) for number in range(1, 5)}
        await cluster.create(NewTopic("orders", PARTITIONS, 3))
        chance = Random(seed)
        kept: dict[int, int | None] = {}
        for _ in range(80):
            await one_trouble(cluster, chance, kept)
            await cluster.revive()
        for number in range(1, 5):
            if number not in cluster.members:
                await cluster.start(number, kept_epoch=kept.get(number))
        await cluster.revive()
        await cluster.settled(
            lambda image: all(partition.leader != NO_LEADER for partition in image.topics["orders"].partitions)
        )
        await cluster.controller()

    tell(story, brokers=4, seed=seed)
    assert audit.wrong == []
    assert audit.elections > 2
