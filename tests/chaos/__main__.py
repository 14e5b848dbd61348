"""`make chaos MINUTES=10 SEED=1`: a real cluster under real faults, and a verdict on what its clients saw.

Three brokers and a ZooKeeper, each in its own network namespace; the brokers have ext4 disks whose power can be cut.
Needs root. Ends by repairing all faults, reading everything with new clients, and running the checker: prints PASSED
with exit status 0, or FAILED with 1.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic

from headrace.cli.adopt import open_zookeeper
from headrace.cli.local_zookeeper import LocalZooKeeper
from headrace.cluster.store import StoreError
from headrace.model.failure import Failure
from sim.history.invariants import Limits
from sim.history.recorder import Recorder
from sim.history.verdict import judge
from tests.chaos import permission
from tests.chaos.clients import PROBE, TOPICS, Clients
from tests.chaos.faults import KINDS, ZOOKEEPER, Faults
from tests.chaos.hosts import Hosts
from tests.chaos.machines import Machine, faketime
from tests.recorded_clients import read_everything

BROKERS = (1, 2, 3)
PATIENCE_S = 120.0
LIMITS = Limits(seen_within_s=300, stable_within_s=300)
SETTINGS = "replica.lag.time.max.ms=5000\ngroup.min.session.timeout.ms=1000\n"


class Run:
    def __init__(self, folder: Path, seed: int, kinds: Sequence[str]) -> None:
        self._folder = folder
        self._hosts = Hosts([*BROKERS, ZOOKEEPER])
        keeper = folder / "zookeeper"
        keeper.mkdir()
        self._zookeeper = LocalZooKeeper(
            keeper, 2181, host=self._hosts.address(ZOOKEEPER), wrapping=self._hosts.inside(ZOOKEEPER)
        )
        self._machines = {
            number: Machine(
                number, self._hosts, folder, self._zookeeper.address, SETTINGS, wrong_clocks="clock" in kinds
            )
            for number in BROKERS
        }
        self._bootstrap = ",".join(machine.address for machine in self._machines.values())
        self._sink = (folder / "history.jsonl").open("w", buffering=1)
        self._recorder = Recorder(time.monotonic_ns, self._sink)
        self._faults = Faults(
            seed, self._hosts, self._machines, self._zookeeper, self._leader_of, lambda: self._in_sync() is None, kinds
        )
        self._start_s = time.monotonic()

    def play(self, minutes: float) -> bool:
        self._hosts.open()
        self._zookeeper.start()
        self._zookeeper.wait_until_ready()
        for machine in self._machines.values():
            machine.make_disk()
            machine.start()
        self._wait("brokers are ready", lambda: all(machine.registered for machine in self._machines.values()))
        self._wait("the cluster knows all brokers", self._all_known)
        self._create_topics()
        clients = Clients(self._recorder, self._bootstrap)
        clients.start()
        end_s = time.monotonic() + 60 * minutes
        while time.monotonic() < end_s:
            time.sleep(3)
            self._faults.one(self._fault)
            self._faults.supervise()
        self._faults.heal()
        self._fault("heal")
        self._recorder.happened("faults", "heal")
        self._wait("all replicas are in sync", lambda: self._in_sync() is None)
        hanging = clients.finish()
        read_everything(self._recorder, self._bootstrap, TOPICS)
        return self._judge(clients, hanging)

    def _judge(self, clients: Clients, hanging: list[str]) -> bool:
        verdict = judge(self._recorder.events, LIMITS)
        _say("\n".join([str(verdict), *hanging]))
        _say("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self._faults.counts.items())))
        after_s = self._faults.writable_after_s
        if after_s:
            _say(
                f"writable after a leader's death, all others in sync: median {statistics.median(after_s):.1f} s, "
                f"longest {max(after_s):.1f} s, of {len(after_s)}"
            )
        _say(f"clients that restarted: {clients.begun_anew}")
        return not (verdict.violations or self._faults.never_writable or hanging)

    def _fault(self, what: str) -> None:
        _say(f"{time.monotonic() - self._start_s:7.1f} s  {what}")
        self._recorder.happened("faults", "move", details={"fault": what})

    # --- the cluster ------------------------------------------------------------------------------------------------

    def _admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self._bootstrap, "log_level": 0})

    def _all_known(self) -> bool:
        return len(self._admin().list_topics(timeout=10).brokers) == len(BROKERS)

    def _create_topics(self) -> None:
        topics = [NewTopic(name, count, len(BROKERS)) for name, count in {**TOPICS, PROBE: 1}.items()]
        admin = self._admin()
        for made in admin.create_topics(topics, operation_timeout=30).values():
            made.result(60)

    def _leader_of(self, topic: str) -> int | None:
        try:
            admin = self._admin()
            return int(admin.list_topics(topic, timeout=10).topics[topic].partitions[0].leader)
        except Exception:  # the controller is unknown: use any broker
            return None

    def _in_sync(self) -> str | None:
        """What is not in sync yet, or None."""
        return asyncio.run(self._missing())

    async def _missing(self) -> str | None:
        registered = [number for number, machine in self._machines.items() if machine.registered]
        try:
            store = await open_zookeeper(self._zookeeper.address)
        except Failure as failure:
            return str(failure)
        try:
            return await permission.missing(store, registered, len(BROKERS))
        except StoreError as error:
            return str(error)
        finally:
            await store.close()

    def _wait(self, what: str, condition: object) -> None:
        assert callable(condition)
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"timeout after {PATIENCE_S:g} s: {what} ({self._in_sync()})")
            time.sleep(0.2)

    def close(self) -> None:
        for machine in self._machines.values():
            machine.close()
        self._zookeeper.kill()
        self._sink.close()

    def close_network(self) -> None:
        """Called last before the process ends: clients that hang still try to connect to their brokers, and without the
        bridge they would do so on the machine's own network."""
        self._hosts.close()


def _say(words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(prog="make chaos", description="A real cluster under real faults.")
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--seed", type=int, default=1)
    usual = [kind for kind in KINDS if kind != "clock"]
    parser.add_argument("--only", type=lambda text: text.split(","), default=usual, help=", ".join(KINDS))
    asked = parser.parse_args()
    unknown = set(asked.only) - set(KINDS)
    if unknown:
        parser.error(f"unknown fault {', '.join(sorted(unknown))}; the faults are {', '.join(KINDS)}")
    if "clock" in asked.only and faketime() is None:
        parser.error("the clock fault needs libfaketime, which is not installed (on Debian: apt install libfaketime)")
    folder = Path(tempfile.mkdtemp(prefix="headrace-chaos-"))
    run = Run(folder, asked.seed, asked.only)
    try:
        passed = _played(run, folder, asked.minutes)
        _say("PASSED" if passed else f"FAILED with seed {asked.seed}")
    finally:
        run.close_network()
    os._exit(0 if passed else 1)


def _played(run: Run, folder: Path, minutes: float) -> bool:
    passed = False
    try:
        passed = run.play(minutes)
    except TimeoutError as error:
        _say(str(error))
    finally:
        run.close()
    if passed:
        shutil.rmtree(folder)
    else:
        _say(
            f"the history and the logs are in {folder}; `python -m sim.history {folder}/history.jsonl` checks it again"
        )
    return passed


if __name__ == "__main__":
    main()
