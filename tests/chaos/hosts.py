"""Hosts of a chaos run: network namespaces on one bridge, each with an address, which can be cut off from each other.

Owns the namespaces and the bridge, and nothing else of the machine's network. Names contain the process id, so that
runs do not interfere, and `close` removes everything. Needs root and iproute2.

A link is cut silently and in one direction: the sender gets a wrong hardware address for the other host, so its packets
are lost, while packets of the other host still arrive. Clients run outside the namespaces, on the bridge.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence

_NOWHERE = "02:00:00:00:00:01"
_OUTSIDE = 254


def command(*words: str, check: bool = True) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    if check and done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


class Hosts:
    def __init__(self, numbers: Sequence[int]) -> None:
        """Each host has a number, which ends its address."""
        tag = os.getpid() % 30_000
        self._net = f"10.{100 + tag // 250}.{tag % 250}"
        self._bridge = f"hr{tag}"
        self._numbers = list(numbers)
        self._cut: set[tuple[int, int]] = set()

    def address(self, number: int) -> str:
        return f"{self._net}.{number}"

    def inside(self, number: int) -> list[str]:
        """The prefix of a command that is to run on this host."""
        return ["nsenter", f"--net=/run/netns/{self._name(number)}"]  # and no mount namespace, as `ip netns exec` would

    def _name(self, number: int) -> str:
        return f"{self._bridge}-{number}"

    def _port(self, number: int) -> str:
        return f"{self._bridge}p{number}"

    def open(self) -> None:
        command("ip", "link", "add", self._bridge, "type", "bridge")
        command("ip", "addr", "add", f"{self.address(_OUTSIDE)}/24", "dev", self._bridge)
        command("ip", "link", "set", self._bridge, "up")
        for number in self._numbers:
            name, port = self._name(number), self._port(number)
            command("ip", "netns", "add", name)
            command("ip", "link", "add", port, "type", "veth", "peer", "name", "e0", "netns", name)
            command("ip", "link", "set", port, "master", self._bridge, "up")
            command("ip", "-n", name, "addr", "add", f"{self.address(number)}/24", "dev", "e0")
            command("ip", "-n", name, "link", "set", "e0", "up")
            command("ip", "-n", name, "link", "set", "lo", "up")

    def close(self) -> None:
        for number in self._numbers:
            command("ip", "netns", "del", self._name(number), check=False)
            command("ip", "link", "del", self._port(number), check=False)
        command("ip", "link", "del", self._bridge, check=False)

    # --- faults -----------------------------------------------------------------------------------------------------

    def cut(self, source: int, target: int) -> None:
        """Packets from `source` no longer reach `target`."""
        self._cut.add((source, target))
        command(
            "ip", "-n", self._name(source), "neigh", "replace", self.address(target), "lladdr", _NOWHERE,
            "dev", "e0", "nud", "permanent",
        )  # fmt: skip

    def isolate(self, number: int) -> None:
        """Disconnect the host from the bridge."""
        command("ip", "link", "set", self._port(number), "down")

    def slow(self, number: int) -> None:
        """Limit what this host sends to 512 kbit/s."""
        command(
            "tc", "-n", self._name(number), "qdisc", "replace", "dev", "e0", "root", "tbf", "rate", "512kbit",
            "burst", "3200", "latency", "2s",
        )  # fmt: skip

    def mend(self) -> None:
        for source, target in sorted(self._cut):
            command("ip", "-n", self._name(source), "neigh", "del", self.address(target), "dev", "e0", check=False)
        self._cut.clear()
        for number in self._numbers:
            command("ip", "link", "set", self._port(number), "up")
            command("tc", "-n", self._name(number), "qdisc", "del", "dev", "e0", "root", check=False)
