"""What the nemesis can do to the steady job on YARN, and on standalone masters; both on real HDFS and ZooKeeper."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.nemesis import Kind
from tests.support.services.errors import ServiceError
from tests.support.services.processes import is_alive
from tests.support.steady_rows import build_job
from tests.yarn.faults.sessions import MASTER, FaultSession, SteadyJob, kill, steady
from tests.yarn.standalone_masters import Process, StandaloneMasters, environment_of
from tests.yarn.waiting import GRACE, until
from yarrow.testing.tcp_relay import TcpRelay

Heal = Callable[[], None]
KILL_TASK_EXECUTOR, STOP_TASK_EXECUTOR = "kill a TaskExecutor", "stop a TaskExecutor"
KILL_MASTER, STOP_MASTER = "kill the leader", "stop the leader"
LOSE_NODE, CUT_ZOOKEEPER = "lose a node", "cut ZooKeeper off"
NAME_NODE, SAFE_MODE, ZOOKEEPER = "restart the NameNode", "HDFS is read-only", "restart ZooKeeper"
DAEMONS = (Kind(NAME_NODE, lasts=True), Kind(SAFE_MODE, lasts=True), Kind(ZOOKEEPER, lasts=True))


def nothing() -> None:
    """Heals what is over."""


class Hadoop:
    """Faults of the daemons, the same for both targets."""

    def __init__(self, cluster: HadoopCluster) -> None:
        self._cluster = cluster
        #: Daemons that were killed and have not been started again.
        self.away: set[str] = set()

    def begin(self, kind: str) -> Heal | None:
        match kind:
            case "restart the NameNode":
                return self.lose("namenode")
            case "restart ZooKeeper":
                return self.lose("zookeeper")
            case "HDFS is read-only":
                if self._cluster.run("hdfs", "dfsadmin", "-safemode", "enter").returncode != 0:
                    return None
                return lambda: self._safe_mode("leave")
        raise ValueError(f"there is no fault {kind!r}")

    def lose(self, daemon: str) -> Heal | None:
        """Kills it, if it runs; it starts when that is healed."""
        try:
            self._cluster.kill(daemon)
        except ServiceError:
            return None
        self.away.add(daemon)
        return lambda: self.start(daemon)

    def start(self, daemon: str) -> None:
        self._cluster.start(daemon)
        self.away.discard(daemon)

    def heal_all(self) -> None:
        for daemon in self._cluster.status():
            if daemon.pid is not None and not daemon.serving:
                self._cluster.kill(daemon.name, signal.SIGCONT)
        self._cluster.up()
        self.away.clear()
        self._safe_mode("leave")

    def _safe_mode(self, what: str) -> None:
        # In vain while there is no NameNode; one that comes back leaves it by itself.
        self._cluster.run("hdfs", "dfsadmin", "-safemode", what)


class SteadyTarget:
    """The part of a target that is its job."""

    def __init__(self, job: SteadyJob, hadoop: Hadoop) -> None:
        self.job, self._hadoop = job, hadoop

    def runs(self) -> bool:
        return self.job.runs()

    def last_checkpoint(self) -> int:
        # Who leads stands in ZooKeeper, and whoever asks it waits until it is back.
        return 0 if "zookeeper" in self._hadoop.away else self.job.last_checkpoint()

    def finish(self) -> None:
        self.job.finish()

    def cancel(self) -> None:
        self.job.end()
        assert self.job.state() == "CANCELED"


class YarnTarget(SteadyTarget):
    """A session, its job, and the relay to ZooKeeper."""

    def __init__(self, session: FaultSession, job: SteadyJob, relay: TcpRelay) -> None:
        super().__init__(job, Hadoop(session.hadoop))
        self._session, self._relay = session, relay

    def kinds(self) -> Sequence[Kind]:
        # Each takes an attempt of the application.
        return (
            Kind(KILL_TASK_EXECUTOR, weight=4),
            Kind(STOP_TASK_EXECUTOR, lasts=True, weight=2),
            Kind(KILL_MASTER, limit=1),
            Kind(STOP_MASTER, lasts=True),
            Kind(LOSE_NODE, lasts=True, limit=1),
            Kind(CUT_ZOOKEEPER, lasts=True, weight=2),
            *DAEMONS,
        )

    def begin(self, kind: str) -> Heal | None:
        match kind:
            case "kill a TaskExecutor":
                return self._signal(signal.SIGKILL, *self._task_executors())
            case "stop a TaskExecutor":
                return self._signal(signal.SIGSTOP, *self._task_executors())
            case "kill the leader":
                return self._signal(signal.SIGKILL, *self._masters())
            case "stop the leader":
                return self._signal(signal.SIGSTOP, *self._masters())
            case "cut ZooKeeper off":
                self._relay.cut()
                return self._relay.heal
            case "lose a node":
                return self._hadoop.lose("nodemanager2")
        return self._hadoop.begin(kind)

    def runs(self) -> bool:
        # Nobody would start it again: the reason is of more use than the end of the grace.
        assert not self._session.has_ended(), self._diagnostics()
        return super().runs()

    def heal_all(self) -> None:
        self._relay.heal()
        self._hadoop.heal_all()

    def disturb_after_cancel(self) -> None:
        epoch = self._session.epoch()
        kill(self._session.master())
        until(
            lambda: self._session.epoch() > epoch and self._session.get("/overview") is not None,
            GRACE,
            "another attempt leads",
        )

    def _diagnostics(self) -> str:
        return str(self._session.hadoop.application(self._session.application)["diagnostics"])

    def _task_executors(self) -> list[int]:
        return [one.pid for one in self._session.task_executors()[:1]]

    def _masters(self) -> list[int]:
        return [one.pid for one in self._session.processes(MASTER)[-1:]]

    def _signal(self, number: signal.Signals, *pids: int) -> Heal | None:
        found = [one for one in self._session.hadoop.container_processes() if one.pid in pids]
        hit = 0
        for one in found:
            with contextlib.suppress(ProcessLookupError):
                kill(one, number)
                hit += 1
        if not hit:
            return None
        if number != signal.SIGSTOP:
            return nothing

        def go_on() -> None:
            for one in found:
                if is_alive(one.record):
                    kill(one, signal.SIGCONT)

        return go_on


class StandaloneTarget(SteadyTarget):
    """Two masters and a TaskExecutor; who is killed has a successor at once."""

    def __init__(
        self,
        masters: StandaloneMasters,
        hadoop: HadoopCluster,
        folder: Path,
        output: str,
        parallelism: int = 2,
    ) -> None:
        self._masters, self._folder = masters, folder
        self._environment = hadoop.environment()
        env = environment_of(
            {**masters.config, "execution.target": "remote", **steady(f"{output}-checkpoints")}
        )
        env.set_parallelism(parallelism)
        build_job(env, str(folder), output)
        job_id = str(env.execute_async("steady rows").get_job_id())
        super().__init__(SteadyJob(masters, job_id, folder, output), Hadoop(hadoop))

    def kinds(self) -> Sequence[Kind]:
        return (
            Kind(KILL_TASK_EXECUTOR, weight=4),
            Kind(STOP_TASK_EXECUTOR, lasts=True, weight=2),
            Kind(KILL_MASTER, weight=2),
            Kind(STOP_MASTER, lasts=True, weight=2),
            *DAEMONS,
        )

    def begin(self, kind: str) -> Heal | None:
        match kind:
            case "kill a TaskExecutor":
                self._masters.task_executors[-1].kill()
                self._add_task_executor()
                return nothing
            case "stop a TaskExecutor":
                return stopped(self._masters.task_executors[-1])
            case "kill the leader":
                # Nobody leads while ZooKeeper is away, which only the end of another fault brings back.
                if (leader := self._masters.present_leader()) is None:
                    return None
                leader.kill()
                self._masters.add_master()
                return nothing
            case "stop the leader":
                leader = self._masters.present_leader()
                return stopped(leader) if leader is not None else None
        return self._hadoop.begin(kind)

    def heal_all(self) -> None:
        self._hadoop.heal_all()
        for process in (*self._masters.masters, *self._masters.task_executors):
            if process.runs:
                process.signal(signal.SIGCONT)
        if not self._masters.task_executors[-1].runs:
            self._add_task_executor()

    def disturb_after_cancel(self) -> None:
        epoch = self._masters.epoch()
        self._masters.leader().kill()
        self._masters.add_master()
        until(
            lambda: self._masters.epoch() > epoch and bool(self._masters.overview()), GRACE, "another leads"
        )

    def _add_task_executor(self) -> None:
        number = len(self._masters.task_executors)
        self._masters.task_executors.append(
            Process(f"taskmanager-{number}", self._masters.config, self._folder, self._environment)
        )


def stopped(process: Process) -> Heal | None:
    """Stops it, if it runs; heals by letting it go on."""
    if not process.runs:
        return None
    process.signal(signal.SIGSTOP)
    return lambda: process.signal(signal.SIGCONT) if process.runs else None
