"""A driver as its master sees it, without Java: which ends of runs it tells."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any, cast

import pytest

from tests.unit.runtime.rpc.loops import run, settled
from yarrow.container.batch.driver.batch_driver import BatchDriver
from yarrow.container.batch.driver.driver_run import RunEnd
from yarrow.container.protocol.failure import failure_cause
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.ids import JobID, JobMasterID, ResourceID
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, TOKEN_FILE_VARIABLE, HadoopToken, read_tokens
from yarrow.runtime.fs.token_files import written_tokens
from yarrow.runtime.rpc.bootstrap import PemIdentity, SparkDriverBootstrap
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    BatchSubmission,
    DelegationTokens,
    FailureCause,
    SparkPage,
    SparkPageRequest,
)

JOB = JobID("1" * 32)
LIMIT = 60.0


class Master:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    async def fail_batch(self, job_id: JobID, run: int, cause: FailureCause) -> Acknowledge:
        self.failures.append(cause.message)
        return Acknowledge()


class Failing:
    """A run that fails when told to."""

    def __init__(self, submission: BatchSubmission) -> None:
        self.submission = submission
        self.fails = asyncio.Event()

    async def execute(self) -> tuple[RunEnd, FailureCause | None]:
        await self.fails.wait()
        return RunEnd.FAILED, failure_cause(
            AttributeError("'NoneType' object has no attribute 'setCallSite'")
        )


def driver_for(master: Master, folder: Path) -> BatchDriver:
    bootstrap = SparkDriverBootstrap(
        application_id="application",
        driver_id=ResourceID("sparkdriver-1"),
        job_id=JOB,
        job_master_address="",
        job_master_id=JobMasterID("master"),
        host="localhost",
        bind_host="127.0.0.1",
        identity=PemIdentity(),
        data_secret=b"",
        configuration={},
        log_directory=str(folder),
        working_directory=str(folder),
    )
    return BatchDriver(bootstrap, cast(Any, master), ManualClock(), 10.0)


@pytest.mark.parametrize("ends", [False, True], ids=["alone", "in a driver that ends"])
def test_a_run_that_fails_because_its_driver_ends_is_no_failure_of_the_job(
    tmp_path: Path, ends: bool
) -> None:
    async def body() -> None:
        master, runs = Master(), list[Failing]()
        driver = driver_for(master, tmp_path)
        await driver.start()

        def make_run(submission: BatchSubmission, folder: Path) -> Failing:
            runs.append(Failing(submission))
            return runs[-1]

        driver._make_run = cast(Any, make_run)
        await driver.submit_batch(BatchSubmission(job_id=JOB, run=0, job_graph=b""))
        await settled()
        if ends:
            # Its session is closed under the run.
            driver.finish("the TaskExecutor is gone")
        runs[0].fails.set()
        await settled()
        assert len(master.failures) == (0 if ends else 1)
        await driver.stop()

    run(body())


def test_pages_that_do_not_answer_leave_threads_for_new_tokens(tmp_path: Path) -> None:
    async def body() -> None:
        driver = driver_for(Master(), tmp_path)
        await driver.start()
        answers = threading.Event()

        def read_page(request: SparkPageRequest) -> SparkPage:
            answers.wait()
            return SparkPage(status=200, media_type="", body=b"")

        driver._read_page = read_page
        request = SparkPageRequest(path="/jobs/", base="")
        reads = [asyncio.ensure_future(driver.read_spark_page(request)) for _ in range(8)]
        try:
            await settled()
            assert await asyncio.wait_for(driver.run_blocking(lambda: "taken"), LIMIT) == "taken"
        finally:
            answers.set()
            await asyncio.gather(*reads)
            await driver.stop()

    run(body())


def test_tokens_that_come_while_spark_starts_are_handed_on_when_it_has_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "container_tokens"
    file.write_bytes(written_tokens([]))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(file))

    async def body() -> None:
        handed: list[bytes] = []

        def hand_on() -> None:
            handed.append(read_tokens(file)[0].password)

        def refuse() -> None:
            raise YarrowError("Java is busy")

        driver = driver_for(Master(), tmp_path)
        await driver.start()
        try:
            await driver.spark_started(hand_on)
            assert handed == [], "there is nothing yet"
            driver._hand_on_tokens = lambda: None
            await driver.update_delegation_tokens(tokens(b"first"))
            await driver.spark_started(hand_on)
            assert handed == [b"first"]
            await driver.update_delegation_tokens(tokens(b"second"))
            assert handed == [b"first", b"second"]
            await driver.spark_started(refuse)
            assert "Java is busy" in caplog.text
            with pytest.raises(YarrowError, match="Java is busy"):
                # The master does not take this for done.
                await driver.update_delegation_tokens(tokens(b"third"))
        finally:
            await driver.stop()

    run(body())


def tokens(password: bytes) -> DelegationTokens:
    token = HadoopToken(HDFS_KIND, "namenode:8020", b"identifier", password)
    return DelegationTokens(number=1, content=written_tokens([token]))
