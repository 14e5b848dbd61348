"""Two network namespaces with a fixed latency between them.

Run as a program by racks.py (`python -m bench.distance NAME_A NAME_B MILLISECONDS`): it makes a TUN device in each of
the two namespaces, 10.79.1.1 and 10.79.2.1, prints `ready`, and relays packets between them, each delayed by half of
the round trip, until its standard input is closed. Not every kernel has netem; a relay in user space is good enough for
latency, but not for bandwidth.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import os
import struct
import subprocess
import sys
from pathlib import Path

ADDRESSES = ("10.79.1.1", "10.79.2.1")
_DEVICE = "far"
_TUNSETIFF, _IFF_TUN, _IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
_CLONE_NEWNET = 0x40000000
_PACKET_BYTES = 65536


def main(names: tuple[str, str], round_trip_s: float) -> None:
    ends = [_open_device(name, at) for at, name in enumerate(names)]
    asyncio.run(_carry(ends, round_trip_s / 2))


def _open_device(namespace: str, at: int) -> int:
    """A TUN device in the namespace, up, with its address and the way to the other side."""
    with Path(f"/run/netns/{namespace}").open("rb") as there, Path("/proc/self/ns/net").open("rb") as here:
        _enter(there.fileno())
        try:
            device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", _DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
        finally:
            _enter(here.fileno())
    for command in (
        f"addr add {ADDRESSES[at]}/32 dev {_DEVICE}",
        f"link set {_DEVICE} up mtu 1500",
        f"route add {ADDRESSES[1 - at]}/32 dev {_DEVICE} src {ADDRESSES[at]}",
    ):
        subprocess.run(["ip", "-n", namespace, *command.split()], check=True)
    return device


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "cannot enter the network namespace")


async def _carry(ends: list[int], one_way_s: float) -> None:
    loop = asyncio.get_running_loop()
    closed = loop.create_future()
    for source, target in (ends, reversed(ends)):
        loop.add_reader(source, _take, loop, source, target, one_way_s)
    loop.add_reader(sys.stdin, closed.set_result, None)
    print("ready", flush=True)
    await closed


def _take(loop: asyncio.AbstractEventLoop, source: int, target: int, one_way_s: float) -> None:
    with contextlib.suppress(BlockingIOError):
        while packet := os.read(source, _PACKET_BYTES):
            loop.call_later(one_way_s, _deliver, target, packet)


def _deliver(target: int, packet: bytes) -> None:
    with contextlib.suppress(OSError):  # a full device drops packets, as a real network does
        os.write(target, packet)


if __name__ == "__main__":
    main((sys.argv[1], sys.argv[2]), float(sys.argv[3]) / 1000)
