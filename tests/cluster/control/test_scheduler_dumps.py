"""What a JobMaster writes down when it fails inside, and `yarrow replay` of it."""

from __future__ import annotations

import stat
from pathlib import Path

import msgspec
import pytest
from typer.testing import CliRunner

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.cluster.control.test_jobs import master_of
from tests.support.job_graphs import Stage, linear_job
from tests.unit.am.jobmaster.scheduling.scheduling import BROKEN
from tests.unit.runtime.rpc.loops import run
from yarrow.am.execution.execution_graph import Execution
from yarrow.am.jobmaster.scheduler_dumps import FILES_KEPT, write_dump
from yarrow.am.jobmaster.scheduling.job_scheduler import JobScheduler
from yarrow.am.jobmaster.scheduling.replay import read_dump
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions
from yarrow.cli.main import app
from yarrow.client.errors import CommandError
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.errors import JobAlreadyEndedError, JobNotFoundError, YarrowError
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.states import ExecutionState


def replayed(file: Path) -> str:
    """The output of `yarrow replay FILE`; raises CommandError."""
    done = CliRunner().invoke(app, ["replay", str(file)])
    if done.exception is not None:
        raise done.exception
    return done.output


def test_an_internal_error_leaves_a_file_that_replays(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            master = master_of(cluster, job_id)

            async def bug() -> None:
                raise ZeroDivisionError("password=hunter2")

            master.spawn(bug(), "a bug")
            assert (await cluster.result(job_id)).status is JobStatus.FAILED
            await eventually(lambda: any(cluster.logs.iterdir()))

    run(body())
    (file,) = (tmp_path / "log").iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    dump = read_dump(file.read_bytes())
    assert dump.reason == "ZeroDivisionError: password=******"
    assert type(dump.events[0].event).__name__ == "JobStarted" and len(dump.events) >= 3
    assert "lead to the same actions." in replayed(file)


def test_an_error_of_the_scheduler_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = JobScheduler._changed

    def broken(self: JobScheduler, execution: Execution, now: float) -> Actions:
        if execution.state is ExecutionState.FAILED:
            raise KeyError("a bug")
        return changed(self, execution, now)

    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            monkeypatch.setattr(JobScheduler, "_changed", broken)
            first = cluster.executors[0]
            with pytest.raises(YarrowError, match="a bug"):
                await first.report(ExecutionState.FAILED, next(iter(first.tasks)), cause=BROKEN)
            await eventually(lambda: any(cluster.logs.iterdir()))
            monkeypatch.undo()
            await cluster.dispatcher.cancel_job(job_id)

    run(body())
    (file,) = (tmp_path / "log").iterdir()
    dump = read_dump(file.read_bytes())
    assert dump.events[-1].error == "KeyError"
    with pytest.raises(CommandError, match="raised KeyError; replayed, it raised nothing"):
        replayed(file)
    monkeypatch.setattr(JobScheduler, "_changed", broken)
    assert f"Event {dump.events[-1].number} (TasksUpdated) raises KeyError, as it did." in replayed(file)


def test_decisions_are_told_while_the_job_runs(tmp_path: Path) -> None:
    async def body() -> None:
        async with control_cluster(tmp_path, 2) as cluster:
            job_id = await cluster.submit(linear_job(Stage(2)))
            await cluster.until_running(job_id, 2)
            found = await cluster.dispatcher.request_scheduler_decisions(job_id, 1000)
            decisions = [msgspec.json.decode(each) for each in found]
            assert decisions[0]["event"]["event"] == "JobStarted"
            assert decisions[0]["actions"] == [{"action": "DeclareRequirements", "slots": 2}]
            (last,) = await cluster.dispatcher.request_scheduler_decisions(job_id, 1)
            assert last == found[-1]
            await cluster.dispatcher.cancel_job(job_id)
            await cluster.result(job_id)
            with pytest.raises(JobAlreadyEndedError, match="its status is CANCELED already"):
                await cluster.dispatcher.request_scheduler_decisions(job_id, 1)
            with pytest.raises(JobNotFoundError):
                await cluster.dispatcher.request_scheduler_decisions(JobID("f" * 32), 1)

    run(body())


def test_the_newest_files_are_kept_and_what_is_there_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "yarrow.log").write_text("a log")
    for number in range(FILES_KEPT + 3):
        write_dump(tmp_path / f"scheduler-job-{number}.json", b"{}")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"yarrow.log"} | {f"scheduler-job-{number}.json" for number in range(3, FILES_KEPT + 3)}
    (tmp_path / "elsewhere").write_text("not ours")
    (tmp_path / "scheduler-job-99.json").symlink_to(tmp_path / "elsewhere")
    write_dump(tmp_path / "scheduler-job-99.json", b"{}")
    assert (tmp_path / "elsewhere").read_text() == "not ours"


@pytest.mark.parametrize(
    ("data", "problem"), [(None, "cannot be read"), (b"[]", "no dump of a JobScheduler")]
)
def test_a_file_that_is_no_dump_is_named(tmp_path: Path, data: bytes | None, problem: str) -> None:
    file = tmp_path / "scheduler-x-1.json"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(CommandError, match=problem):
        replayed(file)
