"""RelayedCluster: a standalone cluster whose masters and TaskExecutors reach each other by relays alone.

Owner: the test's thread; blocks. All processes listen on one address of loopback. Each of them tells others an address
of its own, on which relays stand. So a master or a TaskExecutor can be cut off while it lives. Clients ask REST without
a relay. Linux alone: all of 127.0.0.0/8 is loopback there.
"""

from __future__ import annotations

import itertools
import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from yarrow.client.errors import CommandError
from yarrow.client.rest.job_submission import submit
from yarrow.client.rest.masters import masters_rest_client
from yarrow.client.rest.remote_job_client import RemoteJobClient
from yarrow.client.rest.rest_client import RestClient
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.standalone.leader_announcements import LeaderAnnouncements
from yarrow.testing.connectors.cluster_process import ClusterProcess
from yarrow.testing.connectors.connector_job import DEADLINE, ConnectorJob, wait_until
from yarrow.testing.connectors.errors import ConnectorCheckError
from yarrow.testing.fault_plan import FaultPlan
from yarrow.testing.tcp_relay import TcpRelay

_LISTEN = "127.0.0.1"
_QUORUM = "high-availability.zookeeper.quorum"
#: Below the ports that the system gives to outgoing connections.
_PORTS = range(20_000, 32_000)
_SLOTS = 2
_RETRY_MS = 100
_SETTINGS = {
    "jobmanager.bind-host": _LISTEN,
    "rest.address": _LISTEN,
    "rest.bind-address": _LISTEN,
    "taskmanager.bind-host": _LISTEN,
    "taskmanager.numberOfTaskSlots": str(_SLOTS),
    # A peer that is cut off is taken for dead soon; a false alarm costs a restart, and no row.
    "heartbeat.interval": "200 ms",
    "heartbeat.timeout": "2 s",
    "cluster.registration.max-timeout": "1 s",
    "cluster.registration.error-delay": "500 ms",
    "cluster.registration.refused-registration-delay": "500 ms",
}


@dataclass(eq=False)
class Member:
    """A master or a TaskExecutor, with the relays by which others reach it."""

    process: ClusterProcess
    relays: list[TcpRelay] = field(default_factory=list)


class RelayedCluster:
    """The cluster of one trial."""

    def __init__(
        self,
        folder: Path,
        election: Mapping[str, str] | None = None,
        plan: FaultPlan | None = None,
        gates: Path | None = None,
    ) -> None:
        """Starts masters, two of them with an `election`, and one TaskExecutor.

        `election` are the settings of high availability, without a cluster id. The masters meet `plan`.
        """
        self._folder = folder
        folder.mkdir(parents=True)
        self._left = ExitStack()
        #: Two clusters on one machine have other hosts and ports.
        self._id = RandomIdFactory().hex_id()
        self._random = random.Random(self._id)
        network = self._random.randrange(1, 255)
        self._hosts = (f"127.0.{network}.{number}" for number in itertools.count(2))
        self._configuration = {**_SETTINGS, "security.cluster.directory": str(folder / "cluster")}
        self._to_zookeeper: list[TcpRelay] = []
        self._rest: RestClient | None = None
        self.masters: list[Member] = []
        self.task_executors: list[Member] = []
        try:
            if election is not None:
                self._elect(election)
            for _ in range(1 if election is None else 2):
                self._add_master(plan, gates)
            self.add_task_executor()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all processes and relays."""
        self._left.close()

    def _elect(self, election: Mapping[str, str]) -> None:
        """Masters and TaskExecutors reach ZooKeeper by relays."""
        servers = [server.partition("/") for server in election[_QUORUM].split(",")]
        for address, _, _ in servers:
            host, _, port = address.rpartition(":")
            self._to_zookeeper.append(self._left.enter_context(TcpRelay((host, int(port)))))
        self._configuration |= dict(election) | {
            _QUORUM: ",".join(relay.address for relay in self._to_zookeeper),
            "high-availability.cluster-id": f"kit-{self._id}",
        }

    def _add_master(self, plan: FaultPlan | None, gates: Path | None) -> None:
        host = next(self._hosts)
        port, web = self._free_port(host), self._free_port(_LISTEN)
        own = {
            "jobmanager.rpc.address": host,
            "jobmanager.rpc.port": str(port),
            "high-availability.jobmanager.port": str(port),
            "rest.port": str(web),
            "rest.bind-port": str(web),
        }
        if not self.masters:
            # Clients without an election ask the only one.
            self._configuration |= {"rest.port": str(web)}
        log = self._folder / f"master-{len(self.masters)}.log"
        self._add(self.masters, ClusterProcess("jobmanager", self._configuration | own, log, plan, gates))
        self._relay(self.masters[-1], host, [port])

    def add_task_executor(self) -> None:
        """Returns when it has registered."""
        host = next(self._hosts)
        rpc, *data = [self._free_port(host) for _ in range(1 + _SLOTS)]
        ports = ",".join(map(str, data))
        own = {
            "taskmanager.host": host,
            "taskmanager.rpc.port": str(rpc),
            "taskmanager.data.port": ports,
            "taskmanager.data.bind-port": ports,
        }
        log = self._folder / f"task-executor-{len(self.task_executors)}.log"
        self._add(self.task_executors, ClusterProcess("taskmanager", self._configuration | own, log))
        self._relay(self.task_executors[-1], host, [rpc, *data])
        self.until_registered(len(self.task_executors))

    def _add(self, members: list[Member], process: ClusterProcess) -> None:
        self._left.callback(process.close)
        members.append(Member(process))

    def _relay(self, member: Member, host: str, ports: list[int]) -> None:
        for port in ports:
            member.relays.append(self._left.enter_context(TcpRelay((_LISTEN, port), host, port)))

    def _free_port(self, host: str) -> int:
        """A port on which nobody listens, neither at `host` nor at the address of all processes."""
        for port in self._random.sample(_PORTS, len(_PORTS)):
            try:
                for address in {host, _LISTEN}:
                    socket.create_server((address, port)).close()
            except OSError:
                continue
            return port
        raise OSError("no port is free")

    # Faults.

    def task_executor_of(self, worker: int) -> Member:
        """The TaskExecutor above a worker. Raises ConnectorCheckError if the worker has ended."""
        for member in self.task_executors:
            if worker in member.process.pids():
                return member
        raise ConnectorCheckError(f"the worker {worker} has ended")

    def cut_off_task_executor(self, member: Member) -> None:
        """Nothing passes between it and the masters from now on."""
        own = member.process.pids()
        for master in self.masters:
            for relay in master.relays:
                relay.cut(own)
        for relay in member.relays:
            relay.cut()

    def cut_off_master(self, member: Member) -> None:
        """Nothing passes between it and TaskExecutors, or between it and ZooKeeper, from now on."""
        for relay in member.relays:
            relay.cut()
        for relay in (*self._to_zookeeper, *(each for one in self.task_executors for each in one.relays)):
            relay.cut([member.process.pid])

    def heal(self, *, breaks: bool) -> None:
        """The network is back: held bytes come late, or with `breaks` their connections end without them."""
        members = (*self.masters, *self.task_executors)
        for relay in (*self._to_zookeeper, *(each for one in members for each in one.relays)):
            if relay.is_cut and breaks:
                relay.reset()
            relay.heal()

    # What clients see.

    def _rest_client(self, attempts: int) -> RestClient:
        others = {
            "rest.retry.delay": f"{_RETRY_MS} ms",
            "rest.retry.max-attempts": str(attempts),
            "rest.await-leader-timeout": "3 min",
        }
        return masters_rest_client(Settings(self._configuration | others, "the kit of connectors"))

    def rest(self) -> RestClient:
        """A client of the leading master, which gives up after some seconds without one."""
        if self._rest is None:
            self._rest = self._rest_client(20)
        return self._rest

    def get(self, path: str) -> Any:
        """The leader's answer; None while nobody answers."""
        try:
            return self.rest().get(path)
        except CommandError:
            for member in (*self.masters, *self.task_executors):
                member.process.is_killed()
            return None

    def registered(self) -> int:
        """Number of TaskExecutors that the master knows; -1 while nobody answers."""
        return int((self.get("/overview") or {"taskmanagers": -1})["taskmanagers"])

    def until_registered(self, number: int) -> None:
        """Waits until the master knows so many TaskExecutors."""
        wait_until(lambda: self.registered() == number, f"{number} TaskExecutors are registered")

    def leader(self) -> Member:
        """The master that leads, waited for."""
        found: list[Member] = []

        def leads() -> bool:
            present = LeaderAnnouncements(self._folder / "cluster").present()
            found[:] = [
                each for each in self.masters if present is not None and each.process.pid == present.pid
            ]
            return bool(found)

        wait_until(leads, "a master leads")
        return found[0]

    def submit(self, graph: JobGraph) -> RemoteJob:
        """Submits a job. Its client waits for the next leader as long as any trial does."""
        rest = self._rest_client(int(DEADLINE * 1000) // _RETRY_MS)
        job_id = JobID(submit(rest, graph, ()))
        return RemoteJob(self, RemoteJobClient(rest, msgspec.structs.replace(graph, job_id=job_id)))


class RemoteJob(ConnectorJob):
    """A job on a RelayedCluster."""

    def __init__(self, cluster: RelayedCluster, client: RemoteJobClient) -> None:
        super().__init__(client)
        self._relayed = cluster
        self._last = 0

    def completed(self) -> int:
        """The id of the last completed checkpoint, which goes on under the next master."""
        answer = self._relayed.get(f"/jobs/{self._client.get_job_id()}/checkpoints") or {}
        last = ((answer.get("latest") or {}).get("completed") or {}).get("id", 0)
        self._last = max(self._last, int(last))
        return self._last
