"""One client's connection: frames in, replies out, in order.

Bytes arrive in a receive buffer that all connections share; whole frames are handled right there, before the next
read, so a produced batch goes from the socket to the log without a copy. Only what is left of an unfinished frame
moves into a buffer of the connection's own, whose memory grows with the bytes that really came, never with what a
length promises; a large frame that is well under way gets one of a few spare buffers, whose memory is warm, or it is
read in steps for which there must be room (unfinished.py). A connection whose last frame was large reads the next one
in two steps, so that little of it has to move: the beginning, and then exactly the rest. An idle connection holds no
buffer.

Handlers answer at once or later (api.contract); replies wait in a queue for those before them, and leave at the end of
the event loop's turn (turns.py). While a request is held, those behind it are not handled. A peer that sends faster
than it reads is not read from until it has caught up: no request is handled while a few megabytes of replies have not
left, so a connection costs those and one reply.

A peer that sends without a pause has half a megabyte handled at a time, requests and replies together, or some dozens
of small frames, and the rest in the event loop's next turn: everybody else would wait for all that it has sent and goes
on sending.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from typing import Any, Protocol, TypeGuard, cast

from headrace.api.contract import Caller, Disconnect, Peer
from headrace.server.answering import Buffer, Dispatch, Pending
from headrace.server.complaints import Complaints
from headrace.server.spare_buffers import SPARE_BYTES, SpareBuffers
from headrace.server.turns import Turns
from headrace.server.unfinished import UnfinishedRequests
from headrace.wire.errors import Malformed
from headrace.world.lazy_memory import LazyMemory, lazy_memory

_SIZE = struct.Struct(">i")
_MAX_WAITING_REPLIES = 512
_MAX_UNSENT_CHUNKS = 8  # of replies, two or three of them large; more leave at once
_MAX_UNSENT_BYTES = 4 << 20  # of replies; while there are more, no request is handled
_BRIEF_BYTES = 4096  # of a request; its reply is brief if it carries no records
_SPARE_FROM_BYTES = 64 * 1024  # of a frame that must have arrived before it gets a spare buffer
_STEP_BYTES = 1 << 20  # of a large frame that are read in a turn, and before more room is asked for
_LARGE_BYTES = 4 * _SPARE_FROM_BYTES  # a frame; the next one of the same client is probably as large
_TURN_BYTES = 512 * 1024  # of one connection that are handled before others have their turn
_OVERDRAFT_BYTES = 512 * 1024  # that are handled all the same if they have been read: putting them aside costs a copy
_FRAME_COST_BYTES = 16 * 1024  # a frame takes as long as so many bytes more


class Doorkeeper(Protocol):
    """What the listener knows about all connections."""

    name: str  # as callers are told, so that rules may differ by listener
    receive_buffer: memoryview
    max_frame_bytes: int
    spare_buffers: SpareBuffers
    unfinished: UnfinishedRequests
    complaints: Complaints
    turns: Turns

    def entered(self, connection: Connection) -> bool: ...

    def left(self, connection: Connection) -> None: ...

    def monotonic(self) -> float: ...


class _Slot:
    """A reply's place in the queue."""

    __slots__ = ("chunks", "size")

    def __init__(self) -> None:
        self.chunks: list[Buffer] | None = None
        self.size = 0  # of these


class Connection(asyncio.BufferedProtocol):
    __slots__ = (
        "_begins_small", "_behind_bytes", "_dispatch", "_filled", "_handed_bytes", "_held", "_keeper", "_lacks_room",
        "_need", "_out", "_out_bytes", "_own", "_paused_by_peer", "_queue", "_reading", "_tasks", "_transport",
        "_turn_bytes", "_until", "caller", "last_active",
    )  # fmt: skip

    def __init__(self, dispatch: Dispatch, keeper: Doorkeeper) -> None:
        self._dispatch = dispatch
        self._keeper = keeper
        self._transport: asyncio.Transport | None = None
        self._own: bytearray | LazyMemory | None = None  # an unfinished frame
        self._filled = 0  # bytes of it that are there
        self._need = 0  # its size, once that is known
        self._until = 0  # how far it may be read now
        self._lacks_room = False  # to read further
        self._begins_small = False  # the next read: the last frame was large, or there were many
        self._queue: deque[_Slot] = deque()
        self._behind_bytes = 0  # of replies in the queue that wait for those before them
        self._out: list[Buffer] = []
        self._out_bytes = 0
        self._handed_bytes = 0  # to the transport, so far
        self._tasks: set[asyncio.Future[Any]] = set()
        self._held: _Slot | None = None  # of the request that must be answered before the next one is handled
        self._paused_by_peer = False
        self._reading = True
        self._turn_bytes = _TURN_BYTES  # that are left of its turn; if none, it goes on in the next one
        self.caller = Caller(Peer("", 0, "", 0), listener=keeper.name)
        self.last_active = 0.0

    # --- what the event loop calls ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._transport = transport
        peer = transport.get_extra_info("peername") or ("", 0)
        local = transport.get_extra_info("sockname") or ("", 0)
        self.caller = Caller(Peer(peer[0], peer[1], local[0], local[1]), listener=self._keeper.name)
        self.last_active = self._keeper.monotonic()
        transport.set_write_buffer_limits(high=4 << 20)
        if not self._keeper.entered(self):
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        if self._own is not None:
            self._release(self._own)
            self._give_back(self._own)
            self._own = None
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        self._queue.clear()
        self._keeper.left(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        own = self._own
        if own is None:
            shared = self._keeper.receive_buffer
            return shared[:_SPARE_FROM_BYTES] if self._begins_small else shared
        return memoryview(own)[self._filled : self._until]

    def buffer_updated(self, nbytes: int) -> None:
        keeper = self._keeper
        self.last_active = keeper.monotonic()
        if self._own is not None:
            self._filled += nbytes
            self._take_own()
            self._send()
            return
        self._begins_small = False  # until a large frame has come as well
        if nbytes < _SPARE_FROM_BYTES:
            self._turn_bytes = _TURN_BYTES  # there was no more to read, so others had their turn
        self._take(keeper.receive_buffer, nbytes)
        self._send(brief=nbytes <= _BRIEF_BYTES)

    def pause_writing(self) -> None:
        self._paused_by_peer = True
        self._steer_reading()

    def resume_writing(self) -> None:
        self._paused_by_peer = False
        self._steer_reading()

    def eof_received(self) -> bool:
        return False

    # --- frames -----------------------------------------------------------------------------------------------------

    def _take(self, data: memoryview, end: int) -> None:
        """Handle the whole frames in the first `end` bytes of `data` and keep what is left."""
        at, left = 0, self._turn_bytes
        while end - at >= 4 and left > -_OVERDRAFT_BYTES and self._reading:  # the rest waits
            size = _SIZE.unpack_from(data, at)[0]
            if not 8 <= size <= self._keeper.max_frame_bytes:
                self._refuse(size)
                return
            after = at + 4 + size
            if after > end:
                break
            reply_bytes = self._handle(data[at + 4 : after])
            if reply_bytes < 0:
                return
            at = after
            left -= size + reply_bytes + _FRAME_COST_BYTES
        had, self._turn_bytes = self._turn_bytes, left
        if at < end:
            self._keep(data[at:end])
        elif end < _SPARE_FROM_BYTES:
            self._turn_bytes = _TURN_BYTES  # there is no more to read, so others have their turn, whatever was made
            return
        if left <= 0 < had:
            self._let_others(aside=left <= -_OVERDRAFT_BYTES)

    def _let_others(self, *, aside: bool) -> None:
        """Go on in the next turn of the event loop, and read less then, if some had to be put `aside`."""
        if self._transport is not None:
            self._begins_small = self._begins_small or aside
            self._transport.pause_reading()
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Handle the whole frames that were put aside, and read again."""
        self._turn_bytes = _TURN_BYTES
        if self._transport is None or not self._reading:
            return
        self._transport.resume_reading()
        if self._own is not None:
            self._take_own()
            self._send()

    def _keep(self, rest: memoryview) -> None:
        size = self._frame_bytes(rest)
        if size < 0:
            return
        self._filled, self._need = len(rest), size
        self._make_room(rest)

    def _make_room(self, come: Buffer | LazyMemory) -> None:
        """Let the unfinished frame grow, whose first bytes are in `come`."""
        here, need = self._filled, self._need
        if here < _SPARE_FROM_BYTES:
            self._until = max(here + 1, min(need, max(4096, 2 * here), _SPARE_FROM_BYTES))
            self._move(come, bytearray(self._until))
            return
        unfinished = self._keeper.unfinished
        if here >= need:  # whole frames, put aside for the next turn
            self._until = here + 1
            self._move(come, bytearray(self._until))
            unfinished.keep(self, here)
            return
        spare = self._keeper.spare_buffers.borrow() if need <= SPARE_BYTES else None
        if spare is not None:
            self._until = need
            self._move(come, spare)
            return
        until = min(need, 2 * here, here + _STEP_BYTES)
        granted = unfinished.grant(self, here, until)
        if self._own is None or len(self._own) < need:
            try:
                self._move(come, lazy_memory(need))
            except OSError as error:
                unfinished.release(self)
                self._close(f"no memory for a request of {need} bytes: {error.strerror}")
                return
        self._until = until
        if not granted:
            self._lacks_room = True
            self._steer_reading()
        elif until - here == _STEP_BYTES:
            self._let_others(aside=False)

    def _move(self, come: Buffer | LazyMemory, own: bytearray | LazyMemory) -> None:
        own[: self._filled] = memoryview(come)[: self._filled]
        self._own = own

    def room_granted(self) -> None:
        self._lacks_room = False
        self._steer_reading()

    def _release(self, own: bytearray | LazyMemory) -> None:
        """It is no longer unfinished."""
        if len(own) >= _SPARE_FROM_BYTES and not _is_spare(own):
            self._keeper.unfinished.release(self)

    def _give_back(self, own: bytearray | LazyMemory) -> None:
        if _is_spare(own):
            self._keeper.spare_buffers.give_back(own)

    def _take_own(self) -> None:
        own = self._own
        assert own is not None
        filled = self._filled
        if filled >= 4:
            need = self._frame_bytes(memoryview(own)[:filled])
            if need < 0:
                return
            if filled < need:
                self._need = need
                if need < self._until:
                    self._until = need
                elif filled == self._until:
                    self._make_room(own)
                return
            self._own = None
            self._filled = 0
            self._begins_small = self._begins_small or need >= _LARGE_BYTES
            self._release(own)
            self._take(memoryview(own), filled)
            self._give_back(own)

    def _frame_bytes(self, data: memoryview) -> int:
        """Size of the frame that starts here, its length field included; 4096 while the length is not there yet."""
        if len(data) < 4:
            return 4096
        size = int(_SIZE.unpack_from(data)[0])
        if not 8 <= size <= self._keeper.max_frame_bytes:
            self._refuse(size)
            return -1
        return size + 4

    def _refuse(self, size: int) -> None:
        self._close(f"a frame of {size} bytes; the limit is {self._keeper.max_frame_bytes}")

    def _handle(self, frame: memoryview) -> int:
        """How many bytes of a reply were made; -1 if the connection is closed."""
        try:
            reply = self._dispatch(frame, self.caller)
        except Exception as problem:
            self._give_up(problem)
            return -1
        if reply is None:
            return 0
        if isinstance(reply, list):
            size = len(reply[0]) if len(reply) == 1 else sum(map(len, reply))
            if not self._queue:
                self._out += reply
                self._out_bytes += size
            else:
                slot = _Slot()
                slot.chunks, slot.size = reply, size
                self._queue.append(slot)
                self._behind_bytes += size
                if self._behind_bytes > _MAX_UNSENT_BYTES:
                    self._steer_reading()
            return size
        slot = _Slot()
        self._queue.append(slot)
        self._wait_for(reply, slot)
        if self._held is not None or len(self._queue) >= _MAX_WAITING_REPLIES:
            self._steer_reading()
        return 0

    # --- replies ----------------------------------------------------------------------------------------------------

    def _wait_for(self, reply: Pending, slot: _Slot) -> None:
        task = asyncio.ensure_future(reply.awaited)
        self._tasks.add(task)
        task.add_done_callback(lambda done: self._answered(slot, reply, done))
        if reply.holds:
            self._held = slot
            if reply.kept_bytes >= _SPARE_FROM_BYTES:
                self._keeper.unfinished.keep_copy(reply.kept_bytes, task)

    def _answered(self, slot: _Slot, reply: Pending, done: asyncio.Future[Any]) -> None:
        self._tasks.discard(done)
        if self._transport is None or done.cancelled():
            return
        try:
            finished = reply.finish(done.result())
        except Exception as problem:
            self._give_up(problem)
            return
        if self._held is slot:
            self._held = None
        if finished is not None and not isinstance(finished, list):
            self._wait_for(finished, slot)  # never held: requests behind it may have been handled already
        else:
            slot.chunks = finished or []
            slot.size = sum(map(len, slot.chunks))
            self._behind_bytes += slot.size
            queue = self._queue
            while queue and queue[0].chunks is not None:
                first = queue.popleft()
                self._out += first.chunks or []
                self._out_bytes += first.size
                self._behind_bytes -= first.size
            self._send()
        if not self._reading:
            self._steer_reading()

    def _send(self, *, brief: bool = False) -> None:
        out = self._out
        if out:
            if len(out) > _MAX_UNSENT_CHUNKS or self._out_bytes > _MAX_UNSENT_BYTES:
                self.flush()
            else:
                self._keeper.turns.owes(self, brief=brief and len(out) == 1)

    def flush(self) -> None:
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._handed_bytes += self._out_bytes
            self._out_bytes = 0
            self._transport.writelines(out)

    def _steer_reading(self) -> None:
        if self._transport is None:
            return
        wanted = (
            not self._paused_by_peer
            and not self._lacks_room
            and self._held is None
            and len(self._queue) < _MAX_WAITING_REPLIES
            and self._behind_bytes <= _MAX_UNSENT_BYTES
        )
        if wanted and not self._reading:
            self._reading = True
            if self._turn_bytes > 0:
                self._go_on()
        elif not wanted and self._reading:
            self._reading = False
            self._transport.pause_reading()

    def _give_up(self, problem: Exception) -> None:
        """A request has failed. The client is told by the end of its connection."""
        if isinstance(problem, Disconnect | Malformed):
            self._close(str(problem))
        else:
            self._close("a request failed", problem)

    def _close(self, why: str, problem: Exception | None = None) -> None:
        if self._transport is not None:
            self._complain(why, problem)
            self.close()

    def _complain(self, why: str, problem: Exception | None = None) -> None:
        peer = self.caller.peer
        self._keeper.complaints.note(peer.host, f"closing the connection from {peer.host}:{peer.port}: {why}", problem)

    # --- what the listener does and asks ----------------------------------------------------------------------------

    def close(self) -> None:
        """Ends the connection after what was already answered has left; if it was told so before, at once."""
        if self._transport is None:
            return
        if self._transport.is_closing():
            self._transport.abort()
        else:
            self.flush()
            self._transport.close()

    def drop(self, why: str) -> None:
        """Ends the connection at once."""
        if self._transport is not None:
            self._complain(why)
            self._transport.abort()

    def sending(self) -> tuple[int, int]:
        """The bytes of replies that have left, and those that wait for the peer to read."""
        unread = 0 if self._transport is None else self._transport.get_write_buffer_size()
        return self._handed_bytes - unread, unread

    def receiving(self) -> tuple[int, int]:
        """The bytes of an unfinished request that have come, and those that the peer has yet to send: none if the
        broker does not read now."""
        return self._filled, self._need - self._filled if self._reading and self._own is not None else 0


def _is_spare(own: bytearray | LazyMemory) -> TypeGuard[bytearray]:
    return len(own) == SPARE_BYTES and isinstance(own, bytearray)
