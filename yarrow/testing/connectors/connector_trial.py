"""check_connector: carries out one plan on a connector, and holds what came out against what went in.

Owner: the test's thread; blocks. Every plan ends in the same way: rows go on, the job drains and stops, nothing is left
over. Must not know any connector.
"""

from __future__ import annotations

import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import psutil

from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.embedded.mini_cluster import MiniCluster
from yarrow.runtime.config.options.execution import SAVEPOINT_PATH
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.testing.connectors.connector_job import ConnectorJob, MiniClusterJob, graph_of, wait_until
from yarrow.testing.connectors.connector_plan import ConnectorPlan, PlanKind
from yarrow.testing.connectors.connector_under_test import ConnectorUnderTest
from yarrow.testing.connectors.errors import ConnectorCheckError
from yarrow.testing.connectors.master_process import MasterProcess, newest_checkpoint
from yarrow.testing.connectors.output_check import what_is_wrong
from yarrow.testing.connectors.relayed_cluster import RelayedCluster, RemoteJob
from yarrow.testing.fault_plan import (
    PLAN_KEY,
    ArmedByHand,
    FaultPlan,
    armed_by_hand,
    configuration_of,
    install,
)

#: Rows of one portion, and of those that come at each look while a fault is waited for.
_PORTION, _FEW = 100, 40
#: Completed checkpoints without a new row after which no row is waited for.
_PATIENCE = 100
#: The same where rows may be lost.
_SHORT_PATIENCE = 10


def check_connector(
    connector: ConnectorUnderTest,
    plan: ConnectorPlan,
    cluster: MiniCluster,
    folder: Path,
    election: Mapping[str, str] | None = None,
) -> None:
    """Runs a job with the connector under a plan. Raises ConnectorCheckError if the connector breaks its claim.

    The connector and the folder are new ones. The cluster has processes, and four free slots. `election` are settings
    of high availability, without a cluster id, for plans with elected masters.
    """
    trial = _Trial(connector, plan, cluster, folder, election)
    try:
        trial.run()
    except ConnectorCheckError as error:
        names = sorted(connector.outages())
        elected = ", elections=True" if election is not None else ""
        again = f"make_connector_plan({plan.number}, {connector.guarantee}, {names}{elected})"
        raise ConnectorCheckError(f"{plan}: {error}\nThe plan again: {again}") from error
    finally:
        trial.close()


class _Trial:
    """One plan under way."""

    def __init__(
        self,
        connector: ConnectorUnderTest,
        plan: ConnectorPlan,
        cluster: MiniCluster,
        folder: Path,
        election: Mapping[str, str] | None,
    ) -> None:
        self._connector = connector
        self._plan = plan
        self._cluster = cluster
        self._folder = folder
        self._election = election
        #: A cluster of the trial's own.
        self._own = ExitStack()
        self._gates = folder / "gates"
        self._gates.mkdir(parents=True)
        self._jobs: list[ConnectorJob] = []
        self._sent = 0
        #: What a consumer must see, by the rule of an exactly-once connector.
        self._expected: Counter[str] = Counter()

    def run(self) -> None:
        """See check_connector."""
        ways: dict[PlanKind, Callable[[], None]] = {
            PlanKind.COMMIT_TWICE: self._killed_twice,
            PlanKind.MASTER: self._master_killed,
            PlanKind.TASK_EXECUTOR_CUT_OFF: self._cut_off,
            PlanKind.MASTER_CUT_OFF: self._cut_off,
            PlanKind.MASTER_ELECTED: self._elected,
            PlanKind.OUTAGE: self._outage,
            PlanKind.OUTAGE_AND_KILL: self._outage,
            PlanKind.RESCALED: self._rescaled,
            PlanKind.RESUMED: self._resumed,
            PlanKind.OLDER_SAVEPOINT: self._older_savepoint,
            PlanKind.TWO_JOBS: self._two_jobs,
        }
        ways.get(self._plan.kind, self._killed)()
        self._settle()
        for job in self._running():
            job.stop(self._folder / "last-savepoint", drain=True)
        self._require(self._expected, leftovers=True)

    def close(self) -> None:
        """Ends what still runs."""
        with self._own:
            for job in self._jobs:
                # Jobs on a cluster of the trial's own end with it.
                if isinstance(job, MiniClusterJob):
                    job.end()

    # The kinds of plans.

    def _killed(self) -> None:
        self._feed(_PORTION)
        with self._fault() as planner:
            job = self._submit(self._with(planner.plan))
            self._arm(planner, [job])
            self._feed_until(lambda: planner.has_fired, f"{planner.plan}", [job])
        self._feed(_PORTION)

    def _killed_twice(self) -> None:
        self._feed(_PORTION)
        with self._fault() as planner:
            # One worker: the second time is in the commit of the restore.
            job = self._submit(self._with(planner.plan) | {"parallelism.default": "1"})
            self._arm(planner, [job])
            self._feed_until(lambda: planner.has_fired, f"{planner.plan}", [job])
        self._feed(_PORTION)

    def _master_killed(self) -> None:
        fault = self._plan.fault
        assert fault is not None
        self._feed(_PORTION)
        checkpoints = self._folder / "checkpoints"
        first = graph_of(self._cluster, self._connector, checkpoints, self._with(fault))
        master = MasterProcess(first, fault, self._gates, self._folder / "master.log")
        try:
            self._arm(ArmedByHand(fault, str(self._gates)), [], master.is_killed)
            self._feed_until(master.is_killed, f"{fault}", [])
        finally:
            master.close()
        self._feed(_PORTION)
        # As a master that takes over: the same job goes on from its last completed checkpoint, or begins anew.
        newest = newest_checkpoint(checkpoints)
        restored = {} if newest is None else {SAVEPOINT_PATH.key: newest}
        graph = graph_of(self._cluster, self._connector, self._folder / "checkpoints-of-successor", restored)
        self._run(msgspec.structs.replace(graph, job_id=first.job_id)).until_completed()

    def _cut_off(self) -> None:
        """A worker is held at a point, and its way to the master is cut meanwhile, on either side."""
        fault, plan = self._plan.fault, self._plan
        assert fault is not None
        self._feed(_PORTION)
        cluster = self._own_cluster(None)
        job = self._submit_to(cluster, fault)
        if plan.kind is PlanKind.TASK_EXECUTOR_CUT_OFF:
            # Behind the job, which has taken the slots of the first one.
            cluster.add_task_executor()
        planner = ArmedByHand(fault, str(self._gates))
        self._arm(planner, [job])
        self._feed_until(lambda: planner.pid > 0, f"{fault}", [job])
        self._cut(cluster, planner.pid)
        if not plan.late:
            planner.let_go()
        self._feed(_PORTION)
        if plan.kind is PlanKind.MASTER_CUT_OFF and self._election is None:
            wait_until(lambda: cluster.registered() == 0, "the master has no TaskExecutor", [job])
        else:
            # A process that is cut off completes no checkpoint: another TaskExecutor, or another master, does.
            job.until_completed()
        planner.let_go()
        wait_until(lambda: planner.has_gone_on or not psutil.pid_exists(planner.pid), "the worker goes on")
        cluster.heal(breaks=plan.breaks)
        cluster.until_registered(len(cluster.task_executors))
        job.until_completed()
        self._feed(_PORTION)

    def _cut(self, cluster: RelayedCluster, worker: int) -> None:
        """Cuts off the master, or the TaskExecutor of a worker."""
        if self._plan.kind is PlanKind.MASTER_CUT_OFF:
            cluster.cut_off_master(cluster.leader())
        else:
            cluster.cut_off_task_executor(cluster.task_executor_of(worker))

    def _elected(self) -> None:
        fault = self._plan.fault
        assert fault is not None
        if self._election is None:
            raise ValueError(
                f"{self._plan}: check_connector needs `election`, the settings of high availability"
            )
        self._feed(_PORTION)
        cluster = self._own_cluster(fault)
        leader = cluster.leader().process
        job = self._submit_to(cluster, fault)
        self._arm(ArmedByHand(fault, str(self._gates)), [job], leader.is_killed)
        self._feed_until(leader.is_killed, f"{fault}", [job])
        self._feed(_PORTION)
        job.until_completed()

    def _own_cluster(self, fault_of_masters: FaultPlan | None) -> RelayedCluster:
        cluster = RelayedCluster(self._folder / "cluster", self._election, fault_of_masters, self._gates)
        self._own.callback(cluster.close)
        return cluster

    def _submit_to(self, cluster: RelayedCluster, fault: FaultPlan) -> RemoteJob:
        graph = graph_of(self._cluster, self._connector, self._folder / "checkpoints", self._with(fault))
        job = cluster.submit(graph)
        self._jobs.append(job)
        return job

    def _outage(self) -> None:
        self._feed(_PORTION)
        job = self._submit()
        job.until_completed()
        outage = self._connector.outages()[self._plan.outage]
        workers = job.workers()
        self._feed(_PORTION)
        with outage(workers):
            if self._plan.kind is PlanKind.OUTAGE_AND_KILL:
                os.kill(random.Random(self._plan.number).choice(workers), signal.SIGKILL)
            threading.Event().wait(self._plan.seconds)
        job.until_completed()
        self._feed(_PORTION)

    def _rescaled(self) -> None:
        self._feed(_PORTION)
        job = self._submit({"parallelism.default": "1"})
        job.until_completed()
        for parallelism in (4, 2):
            self._feed(_PORTION)
            job.rescale(parallelism)
            self._feed(_PORTION)
            job.until_completed()

    def _resumed(self) -> None:
        self._feed(_PORTION)
        job = self._submit()
        job.until_completed()
        self._feed(_PORTION)
        path = job.stop(self._folder / "savepoints")
        self._feed(_PORTION)
        self._submit({SAVEPOINT_PATH.key: path, "parallelism.default": "4"}).until_completed()
        self._feed(_PORTION)

    def _older_savepoint(self) -> None:
        self._feed(_PORTION)
        job = self._submit()
        self._settle()
        path = job.savepoint(self._folder / "savepoints")
        before = Counter(self._expected)
        self._feed(_PORTION)
        self._settle()
        job.stop(self._folder / "later-savepoint")
        self._require(self._expected)
        # The rows behind the savepoint are read again, and written again.
        self._expected += self._expected - before
        self._submit({SAVEPOINT_PATH.key: path}).until_completed()
        self._feed(_PORTION)

    def _two_jobs(self) -> None:
        self._feed(_PORTION)
        with self._fault() as planner:
            other = self._submit()
            job = self._submit(self._with(planner.plan), second=True)
            self._arm(planner, [job, other])
            self._feed_until(lambda: planner.has_fired, f"{planner.plan}", [job, other])
        self._feed(_PORTION)
        # Both read all of the input.
        self._expected = self._expected + self._expected

    # How they are done.

    @contextmanager
    def _fault(self) -> Iterator[ArmedByHand]:
        """The plan's fault in the master of this process; workers get it by the job's configuration."""
        fault = self._plan.fault
        assert fault is not None
        planner = ArmedByHand(fault, str(self._gates), lambda: self._cluster.processes[:1])
        install(planner)
        try:
            yield planner
        finally:
            install(None)

    def _with(self, fault: FaultPlan) -> dict[str, str]:
        """The configuration of a job that meets the fault."""
        factory = f"{ArmedByHand.__module__}:{armed_by_hand.__name__}"
        return configuration_of(fault, str(self._gates)) | {PLAN_KEY: factory}

    def _arm(
        self, planner: ArmedByHand, jobs: Sequence[ConnectorJob], ended: Callable[[], bool] = lambda: False
    ) -> None:
        """Lets the fault happen when rows come through: of a checkpoint without rows it would prove nothing."""
        self._feed_until(lambda: bool(self._connector.read_all()) or ended(), "the first rows", jobs)
        planner.arm()

    def _submit(self, settings: dict[str, str] | None = None, *, second: bool = False) -> MiniClusterJob:
        folder = self._folder / f"checkpoints-{len(self._jobs)}"
        return self._run(graph_of(self._cluster, self._connector, folder, settings or {}, second=second))

    def _run(self, graph: JobGraph) -> MiniClusterJob:
        job = MiniClusterJob(self._cluster, graph)
        self._jobs.append(job)
        return job

    def _running(self) -> list[ConnectorJob]:
        return [job for job in self._jobs if not job.has_ended]

    def _feed(self, number: int) -> None:
        rows = [f"row {index:06}" for index in range(self._sent, self._sent + number)]
        self._connector.fill(rows)
        self._sent += number
        self._expected.update(rows)

    def _feed_until(self, condition: Callable[[], bool], what: str, jobs: Sequence[ConnectorJob]) -> None:
        def holds() -> bool:
            self._feed(_FEW)
            return condition()

        wait_until(holds, what, jobs)

    def _settle(self) -> None:
        """Returns when all rows are there, or when checkpoints bring no more of them."""
        jobs = self._running()
        lossy = self._connector.guarantee is DeliveryGuarantee.NONE
        patience = _SHORT_PATIENCE if lossy else _PATIENCE
        seen, since = -1, [0] * len(jobs)

        def is_settled() -> bool:
            nonlocal seen, since
            found = Counter(self._connector.read_all())
            if not lossy and found >= self._expected:
                return True
            completed = [job.completed() for job in jobs]
            if found.total() != seen:
                seen, since = found.total(), completed
            return all(now >= then + patience for now, then in zip(completed, since, strict=True))

        wait_until(is_settled, "all rows", jobs)

    def _require(self, expected: Counter[str], *, leftovers: bool = False) -> None:
        left = self._connector.leftovers() if leftovers else ()
        found = Counter(self._connector.read_all())
        if wrong := what_is_wrong(self._connector.guarantee, expected, found, left):
            raise ConnectorCheckError(wrong)
