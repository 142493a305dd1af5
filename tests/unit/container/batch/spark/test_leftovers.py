"""Which ends of a run remove what attempts of its sinks have begun, without Spark."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.unit.runtime.rpc.loops import run
from yarrow.container.batch.driver.newest_tokens import NewestTokens
from yarrow.container.batch.driver.shared_job import SharedJob
from yarrow.container.batch.spark.batch_run import BatchRun, RunServices, SparkJobError
from yarrow.container.batch.spark.session import SparkHost
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.rpc.batch_gateways import BatchJobMasterGateway, BatchRunError
from yarrow.runtime.rpc.errors import LeaderTokenError, RpcUnavailableError
from yarrow.runtime.rpc.messages import Acknowledge, BatchSubmission


class Master:
    """A BatchJobMaster that answers as a test says."""

    def __init__(self) -> None:
        self.refuses_commit: Exception | None = None
        self.is_silent = False
        self.has_another_run = False

    async def begin_commit(self, job_id: JobID, run: int) -> Acknowledge:
        if self.refuses_commit is not None:
            raise self.refuses_commit
        return Acknowledge()

    async def check_run(self, job_id: JobID, run: int) -> Acknowledge:
        if self.is_silent:
            raise RpcUnavailableError("the master does not answer")
        if self.has_another_run:
            raise BatchRunError("the run is over")
        return Acknowledge()


class Java:
    """Java as a test says."""

    def __init__(self) -> None:
        self.is_gone = False

    def has_ended(self) -> bool:
        return self.is_gone

    def ends_within(self, seconds: float) -> bool:
        return self.is_gone


class Run(BatchRun):
    """A run without a plan, that notes whether it removes leftovers."""

    def __init__(self, work: Callable[[Run], None], master: Master, java: Java, folder: Path) -> None:
        services = RunServices(
            host=cast(
                SparkHost, SimpleNamespace(java=java, session=None, cancel_jobs=lambda group, over: None)
            ),
            master=cast(BatchJobMasterGateway, master),
            configuration={},
            result_key=b"",
            clock=ManualClock(),
            part_bytes=1,
            tokens=NewestTokens(),
        )
        super().__init__(BatchSubmission(job_id=JobID("1"), run=0, job_graph=b""), services, folder)
        self._work = work
        self.has_removed = False
        self._results = cast(Any, SimpleNamespace(committables=[b"something"]))

    async def _prepare(self) -> SharedJob:
        return cast(SharedJob, None)

    async def _report(self) -> None:
        await asyncio.Event().wait()

    def _run(self, shared: SharedJob) -> None:
        self._over.set()
        try:
            self._work(self)
        except Exception as error:
            self._note_cut(error)
            self._fail(self._cause_of(error))

    def _commit_all(self, messages: object) -> None:
        self._commit_is_open = False

    def _remove_leftovers(self) -> None:
        self.has_removed = True


def failed_after_the_next_run_began(run: Run) -> None:
    cast(Master, run._services.master).has_another_run = True
    raise SparkJobError("x")


def raising(error: Exception) -> Callable[[Run], None]:
    def work(run: Run) -> None:
        raise error

    return work


def cancelled_at_its_commit(run: Run) -> None:
    run.cancel()
    run._commit()


REFUSED = BatchRunError("results of another run are stored")


@pytest.mark.parametrize(
    ("work", "refusal", "silent", "java_gone", "removes"),
    [
        pytest.param(Run._commit, None, False, False, True, id="committed"),
        pytest.param(raising(SparkJobError("x")), None, False, False, True, id="failed"),
        pytest.param(raising(SparkJobError("x")), None, True, False, False, id="failed, master away"),
        pytest.param(raising(SparkJobError("x")), None, False, True, False, id="failed, Java gone"),
        pytest.param(raising(RpcUnavailableError("x")), None, False, False, False, id="cut off for a while"),
        pytest.param(raising(LeaderTokenError("x")), None, False, False, False, id="another master leads"),
        pytest.param(failed_after_the_next_run_began, None, False, False, False, id="another run executes"),
        pytest.param(Run._commit, REFUSED, False, False, False, id="another run is to commit"),
        pytest.param(cancelled_at_its_commit, REFUSED, False, False, True, id="cancelled at its commit"),
    ],
)
def test_only_a_run_that_still_owns_the_job_removes_leftovers(
    tmp_path: Path,
    work: Callable[[Run], None],
    refusal: Exception | None,
    silent: bool,
    java_gone: bool,
    removes: bool,
) -> None:
    async def body() -> None:
        master, java = Master(), Java()
        master.refuses_commit, master.is_silent, java.is_gone = refusal, silent, java_gone
        executed = Run(work, master, java, tmp_path / "run")
        await executed.execute()
        assert executed.has_removed is removes

    run(body())
