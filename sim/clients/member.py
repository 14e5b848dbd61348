"""A member of a consumer group with the classic protocol: joins, gets partitions, reads, commits, and rejoins.

The leader of a generation assigns the partitions round robin. Each poll that returned records is followed by a commit,
with its own metadata string, so that the checker can distinguish commits. If a member is told that it is not a member
any more, or hears nothing from its coordinator for its session timeout, it gives up its partitions and joins again.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headrace.client.blocking import ConnectionLost
from headrace.wire.api_keys import ApiKey
from headrace.wire.errors import ErrorCode
from headrace.wire.messages import Message
from sim.clients.caller import GROUP, Caller, Nobody
from sim.clients.reader import Partition, Shelf
from sim.history.event import READ_COMMITTED
from sim.history.outcomes import outcome
from sim.history.recorder import Recorder

_COMMIT_BY_NAME, _FETCH_BY_NAME = 8, 8
_SESSION_S = 8.0
_HEARTBEAT_S = 1.0
_PROTOCOL = "turns"


class _Rejoin(Exception):
    """The group rebalances, and this member still belongs to it."""


class _Lost(Exception):
    """This client is not a member any more."""


_MOVED = (
    ErrorCode.not_coordinator,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
)
_THROWN_OUT = (
    ErrorCode.unknown_member_id,
    ErrorCode.illegal_generation,
    ErrorCode.fenced_instance_id,
    ErrorCode.group_id_not_found,
)


class Member:
    def __init__(self, caller: Caller, recorder: Recorder, name: str, group: str, places: list[Partition]) -> None:
        self._caller = caller
        self._recorder = recorder
        self._proc = f"{name}/1"
        self._group = group
        self._places = places
        self._shelf = Shelf(caller, READ_COMMITTED)
        self._member_id = ""
        self._generation = -1
        self._at: dict[Partition, int] = {}
        self._commits = 0
        self._heard_s = 0.0

    async def run(self, stop: asyncio.Event) -> None:
        details: dict[str, Any] = {"group": self._group, "isolation": READ_COMMITTED, "reset": "earliest"}
        self._recorder.happened(self._proc, "open", details=details | {"session_timeout_ms": int(_SESSION_S * 1000)})
        self._recorder.happened(self._proc, "join", group=self._group)
        while not stop.is_set():
            try:
                await self._join(stop)
                await self._take_up()
                await self._work(stop)
            except _Rejoin:
                self._gave("revoke")
            except _Lost:
                self._gave("lost")
                self._member_id = ""
                self._recorder.happened(self._proc, "join", group=self._group)
        self._recorder.happened(self._proc, "leave", group=self._group)
        self._gave("revoke")
        try:
            leaving = Message(group_id=self._group, members=[Message(member_id=self._member_id)])
            await self._caller.at_coordinator(GROUP, self._group, ApiKey.LEAVE_GROUP, leaving)
        except (ConnectionLost, Nobody):
            pass
        self._recorder.happened(self._proc, "close", group=self._group)

    # --- becoming a member ------------------------------------------------------------------------------------------

    async def _join(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            body = Message(
                group_id=self._group,
                session_timeout_ms=int(_SESSION_S * 1000),
                rebalance_timeout_ms=6000,
                member_id=self._member_id,
                protocol_type="sim",
                protocols=[Message(name=_PROTOCOL, metadata=b"")],
            )
            joined = await self._ask(ApiKey.JOIN_GROUP, body)
            if joined is None:
                continue
            code = joined.error_code
            if code == ErrorCode.member_id_required:
                self._member_id = joined.member_id
            elif code == ErrorCode.unknown_member_id:
                self._member_id = ""
            elif code == ErrorCode.none:
                self._member_id, self._generation = joined.member_id, joined.generation_id
                dealt = self._deal(joined) if joined.leader == joined.member_id else []
                if await self._sync(dealt):
                    return
            else:
                await self._caller.pause()

    def _deal(self, joined: Message) -> list[Message]:
        members = sorted(member.member_id for member in joined.members)
        hands: dict[str, list[Partition]] = {member: [] for member in members}
        for at, place in enumerate(self._places):
            hands[members[at % len(members)]].append(place)
        return [Message(member_id=member, assignment=json.dumps(hand).encode()) for member, hand in hands.items()]

    async def _sync(self, dealt: list[Message]) -> bool:
        body = Message(
            group_id=self._group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type="sim",
            protocol_name=_PROTOCOL,
            assignments=dealt,
        )
        synced = await self._ask(ApiKey.SYNC_GROUP, body)
        if synced is None or synced.error_code != ErrorCode.none:
            if synced is not None and synced.error_code in _THROWN_OUT:
                self._member_id = ""
            await self._caller.pause()
            return False
        hand = [(topic, index) for topic, index in json.loads(bytes(synced.assignment) or b"[]")]
        self._at = dict.fromkeys(hand, -1)
        self._heard_s = asyncio.get_running_loop().time()
        return True

    async def _take_up(self) -> None:
        """Continue at the group's committed offsets."""
        names = {f"{topic}-{index}": None for topic, index in self._at}
        self._recorder.happened(self._proc, "assign", group=self._group, offs=names, epoch=self._generation)
        while self._at:
            op = self._recorder.invoke(self._proc, "committed", group=self._group)
            topics = [Message(name=topic, partition_indexes=[index]) for topic, index in self._at]
            asked = Message(group_id=self._group, topics=topics, member_id=None, member_epoch=-1)
            answer = await self._ask(ApiKey.OFFSET_FETCH, Message(groups=[asked], require_stable=True), _FETCH_BY_NAME)
            found = None if answer is None else offsets_told(answer)
            if found is None:
                self._recorder.info(op)
                await self._beat()
                continue
            metas = {f"{topic}-{index}": note or None for (topic, index), (_, note) in found.items()}
            offs = {f"{topic}-{index}": off for (topic, index), (off, _) in found.items()}
            self._recorder.ok(op, offs=offs, metas=metas)
            self._at = {place: max(0, off) for place, (off, _) in found.items()}
            return

    # --- being one --------------------------------------------------------------------------------------------------

    async def _work(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._beat()
            next_beat_s = asyncio.get_running_loop().time() + _HEARTBEAT_S
            while asyncio.get_running_loop().time() < next_beat_s and not stop.is_set():
                if not self._at:
                    await asyncio.sleep(_HEARTBEAT_S)
                for place in list(self._at):
                    await self._poll(place)

    async def _poll(self, place: Partition) -> None:
        records = await self._shelf.poll(self._recorder, self._proc, self._at, place)
        if records is None:
            await self._caller.pause()
        elif records:
            await self._commit(place)

    async def _commit(self, place: Partition) -> None:
        self._commits += 1
        note, name = f"{self._proc}#{self._commits}", f"{place[0]}-{place[1]}"
        offset = self._at[place]
        op = self._recorder.invoke(
            self._proc, "commit", group=self._group, offs={name: offset}, metas={name: note}, epoch=self._generation
        )
        part = Message(partition_index=place[1], committed_offset=offset, committed_metadata=note)
        body = Message(
            group_id=self._group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[Message(name=place[0], partitions=[part])],
        )
        try:
            answer = await self._caller.at_coordinator(GROUP, self._group, ApiKey.OFFSET_COMMIT, body, _COMMIT_BY_NAME)
        except (ConnectionLost, Nobody):
            self._recorder.info(op, err="_TRANSPORT")
            return
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        if code == ErrorCode.none:
            self._recorder.ok(op)
            return
        self._recorder.end(op, outcome("commit", code.name.upper(), tried_once=True), err=code.name.upper())
        self._heed(code)

    async def _beat(self) -> None:
        body = Message(group_id=self._group, generation_id=self._generation, member_id=self._member_id)
        answer = await self._ask(ApiKey.HEARTBEAT, body)
        if answer is None or answer.error_code in _MOVED:
            if asyncio.get_running_loop().time() - self._heard_s > _SESSION_S:
                raise _Lost
        else:
            self._heard_s = asyncio.get_running_loop().time()
            self._heed(ErrorCode(answer.error_code))

    def _heed(self, code: ErrorCode) -> None:
        if code == ErrorCode.rebalance_in_progress:
            raise _Rejoin
        if code in _THROWN_OUT:
            raise _Lost
        if code in _MOVED:
            self._caller.forget_coordinator(GROUP, self._group)

    async def _ask(self, api_key: int, body: Message, version: int | None = None) -> Message | None:
        """The coordinator's response, or None if there was none."""
        try:
            answer = await self._caller.at_coordinator(GROUP, self._group, api_key, body, version)
        except (ConnectionLost, Nobody):
            self._caller.forget_coordinator(GROUP, self._group)
            await self._caller.pause()
            return None
        if answer.error_code in _MOVED:
            self._caller.forget_coordinator(GROUP, self._group)
            await self._caller.pause()
        return answer

    def _gave(self, f: str) -> None:
        offs = {f"{topic}-{index}": None for topic, index in self._at}
        self._recorder.happened(self._proc, f, group=self._group, offs=offs, epoch=self._generation)
        self._at = {}


def offsets_told(answer: Message) -> dict[Partition, tuple[int, str]] | None:
    """The result of an OffsetFetch of one group; None on an error."""
    group: Any = answer.groups[0]
    if group.error_code != ErrorCode.none:
        return None
    found: dict[Partition, tuple[int, str]] = {}
    for topic in group.topics:
        for part in topic.partitions:
            if part.error_code != ErrorCode.none:
                return None
            found[topic.name, part.partition_index] = (part.committed_offset, part.metadata or "")
    return found
