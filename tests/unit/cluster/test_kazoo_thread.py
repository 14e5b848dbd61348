"""What kazoo's thread reads ahead is given out whole and in order, and reaches the event loop in order."""

from __future__ import annotations

import asyncio
import socket
import threading

from headrace.cluster.kazoo_thread import AheadSocket, Mail, OneThread


def test_what_threads_tell_reaches_the_loop_in_order_and_all_of_it() -> None:
    async def story() -> list[int]:
        mail, seen = Mail(asyncio.get_running_loop()), list[int]()
        everything = asyncio.Event()

        def tell() -> None:
            for number in range(5000):
                mail.put(seen.append, number)
            mail.put(everything.set)

        thread = threading.Thread(target=tell)
        thread.start()
        await asyncio.wait_for(everything.wait(), 60)
        thread.join()
        return seen

    assert asyncio.run(story()) == list(range(5000))


def test_one_who_fails_does_not_keep_the_others_from_being_told() -> None:
    async def story() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()
        loop.set_exception_handler(lambda loop, context: seen.append(str(context["exception"])))
        mail = Mail(loop)

        def fail() -> None:
            raise ValueError("no")

        mail.put(fail)
        mail.put(seen.append, "told")
        while len(seen) < 2:
            await asyncio.sleep(0)
        return seen

    assert asyncio.run(story()) == ["no", "told"]


def test_nobody_is_told_once_the_loop_is_closed() -> None:
    loop = asyncio.new_event_loop()
    mail = Mail(loop)
    loop.close()
    mail.put(print, "nobody sees this")


def test_bytes_that_were_read_ahead_count_as_readable() -> None:
    near, far = socket.socketpair()
    with near, far:
        ahead, handler = AheadSocket(near), OneThread()
        assert handler.select([ahead], [], [], 0) == ([], [], [])
        far.sendall(b"first second")
        assert handler.select([ahead], [], [], 30) == ([ahead], [], [])
        assert ahead.recv(5) == b"first"
        assert ahead.pending() == 7
        assert handler.select([ahead], [], [], None) == ([ahead], [], [])  # nothing is left in the kernel
        assert ahead.recv(100) == b" second"
        assert handler.select([ahead], [], [], 0) == ([], [], [])


def test_other_connections_are_looked_at_while_one_has_read_ahead() -> None:
    near, far = socket.socketpair()
    wake, waker = socket.socketpair()
    with near, far, wake, waker:
        ahead, handler = AheadSocket(near), OneThread()
        far.sendall(b"ab")
        assert ahead.recv(1) == b"a"
        waker.sendall(b"x")
        assert handler.select([ahead, wake], [], [], 30) == ([ahead, wake], [], [])


def test_the_end_of_a_connection_is_readable_and_says_so() -> None:
    near, far = socket.socketpair()
    with near:
        ahead, handler = AheadSocket(near), OneThread()
        far.sendall(b"bye")
        far.close()
        assert ahead.recv(10) == b"bye"
        assert handler.select([ahead], [], [], 30) == ([ahead], [], [])
        assert ahead.recv(10) == b""


def test_a_connection_with_room_is_writable() -> None:
    near, far = socket.socketpair()
    with near, far:
        ahead = AheadSocket(near)
        assert OneThread().select([], [ahead], [], 30) == ([], [ahead], [])
        assert ahead.send(b"abc") == 3
        assert far.recv(10) == b"abc"
