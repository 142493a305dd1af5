"""How applications end, and the child process of a program."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
from msgspec import structs

from yarrow.am.rest.activity import ClientActivity
from yarrow.am.yarn.application_master import ChildProcesses
from yarrow.am.yarn.modes.application_end import (
    MOST_DIAGNOSTICS,
    ApplicationEnd,
    end_of_job,
    end_of_jobs,
)
from yarrow.am.yarn.modes.cluster import CLIENT_PATIENCE, LOOK, READER_PATIENCE, RunningCluster
from yarrow.am.yarn.modes.program_messages import ProgramEnd, ProgramOutcome, ProgramStart
from yarrow.am.yarn.modes.program_process import ProgramPlace, run_main
from yarrow.cli.application_program import job_id_of
from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import JobID, is_hex_id
from yarrow.runtime.rpc.messages import FailureCause, JobResult
from yarrow.runtime.yarn.application import ProgramDescription
from yarrow.runtime.yarn.gateways import FinalStatus

BROKEN = FailureCause(
    exception_name="builtins.ValueError", message="no", stacktrace="Traceback\nValueError: no\n"
)


def result(status: JobStatus, name: str = "a", cause: FailureCause | None = None) -> JobResult:
    return JobResult(
        job_id=JobID("1" * 32),
        name=name,
        status=status,
        net_runtime_ms=1,
        start_time=0,
        end_time=1,
        accumulators={},
        cause=cause,
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (JobStatus.FINISHED, FinalStatus.SUCCEEDED),
        (JobStatus.CANCELED, FinalStatus.KILLED),
        (JobStatus.FAILED, FinalStatus.FAILED),
    ],
)
def test_the_job_decides_the_final_status(status: JobStatus, expected: FinalStatus) -> None:
    assert end_of_job(result(status)).status is expected


def test_diagnostics_begin_with_the_users_own_error() -> None:
    end = end_of_job(result(JobStatus.FAILED, "counts", BROKEN))
    assert end.diagnostics.startswith("Traceback\nValueError: no\n\nJob 'counts'")


def test_diagnostics_say_why_nobody_asked_for_a_cancellation() -> None:
    cancelled = result(JobStatus.CANCELED)
    assert end_of_job(cancelled).diagnostics == f"Job 'a' ({'1' * 32}) was cancelled."
    alone = structs.replace(cancelled, cancellation="its client has been silent for 60 s")
    assert end_of_job(alone).diagnostics.endswith("was cancelled: its client has been silent for 60 s.")


def test_of_several_jobs_the_worst_counts() -> None:
    results = [result(JobStatus.CANCELED), result(JobStatus.FAILED, "b", BROKEN), result(JobStatus.FINISHED)]
    assert end_of_jobs(results).status is FinalStatus.FAILED
    assert end_of_jobs(results[:1] + results[2:]).status is FinalStatus.KILLED
    assert end_of_jobs(results[2:]).diagnostics.startswith("Job 'a'")
    assert end_of_jobs(results[2:] * 3) == ApplicationEnd(FinalStatus.SUCCEEDED, "3 jobs have finished.")


def test_long_diagnostics_keep_their_beginning_and_end() -> None:
    end = ApplicationEnd(FinalStatus.FAILED, "begin" + "x" * 100_000 + "end")
    assert len(end.diagnostics) <= MOST_DIAGNOSTICS
    assert end.diagnostics.startswith("begin") and end.diagnostics.endswith("end")


def test_what_clients_asked_is_noted() -> None:
    clock = ManualClock()
    activity = ClientActivity(clock)
    assert activity.seconds_since_request() == float("inf")
    clock.advance(3)
    assert activity.seconds_since_heartbeat() == 3
    activity.note_heartbeat()
    activity.note_request()
    activity.note_result(JobID("a"))
    assert activity.seconds_since_heartbeat() == activity.seconds_since_request() == 0
    assert activity.has_told(JobID("a")) and not activity.has_told(JobID("b"))


@pytest.mark.parametrize("through", [False, True], ids=["reads on", "is through"])
def test_a_client_that_reads_rows_slowly_is_waited_for(through: bool) -> None:
    job, clock = JobID("1" * 32), ManualClock()
    activity = ClientActivity(clock)
    unneeded = cast(Any, None)
    cluster = RunningCluster(unneeded, unneeded, unneeded, unneeded, activity, clock)
    activity.note_request()
    activity.note_result(job)
    activity.note_rows(job, "c", last=False)
    if through:
        activity.note_rows(job, "c", last=True)

    async def body() -> bool:
        staying = asyncio.ensure_future(cluster.stay_for_clients(job))
        await asyncio.sleep(0)
        clock.advance(CLIENT_PATIENCE + 1)
        # One that is through ends by itself.
        done, _ = await asyncio.wait({staying}, timeout=120 if through else 3 * LOOK)
        clock.advance(READER_PATIENCE)
        await asyncio.wait_for(staying, 120)
        return bool(done)

    assert asyncio.run(body()) is through


def test_a_program_means_the_same_jobs_in_every_attempt() -> None:
    ids = [job_id_of("application_1_1", number) for number in (1, 2)]
    assert ids == [job_id_of("application_1_1", number) for number in (1, 2)]
    assert len({*ids, job_id_of("application_1_2", 1)}) == 3
    assert all(map(is_hex_id, ids))


# The child process. Its cluster is never asked: these programs execute nothing.


def run_program(folder: Path, source: str, *arguments: str) -> ProgramEnd:
    script = folder / "job.py"
    script.write_text(source)
    start = ProgramStart(
        program=ProgramDescription(path="job.py", arguments=arguments),
        configuration={},
        rest_host="127.0.0.1",
        rest_port=1,
        rest_token="t",
        job_id_seed="seed",
    )
    return asyncio.run(run_main(start, ProgramPlace(folder, folder / "out"), ChildProcesses()))


@pytest.mark.cluster
def test_main_runs_in_a_process_of_its_own_with_its_arguments(tmp_path: Path) -> None:
    end = run_program(
        tmp_path, "import os, sys; print(os.getpid(), sys.argv[1:], input if 0 else '')", "--n", "3"
    )
    assert end == ProgramEnd(outcome=ProgramOutcome.RETURNED)
    printed = (tmp_path / "out").read_text()
    assert "['--n', '3']" in printed and not printed.startswith(f"{os.getpid()} ")


@pytest.mark.cluster
def test_what_main_raises_comes_back_with_the_users_frames_alone(tmp_path: Path) -> None:
    end = run_program(tmp_path, "def broken():\n    raise ValueError('mine')\nbroken()\n")
    assert end.outcome is ProgramOutcome.FAILED
    assert end.text.endswith("ValueError: mine")
    assert "job.py" in end.text and "yarrow/cli" not in end.text


@pytest.mark.cluster
def test_a_program_that_exits_has_ended_or_failed_by_its_status(tmp_path: Path) -> None:
    assert run_program(tmp_path, "raise SystemExit(0)").outcome is ProgramOutcome.RETURNED
    assert (
        run_program(tmp_path, "raise SystemExit('not today')").text == "The program exited with 'not today'."
    )


@pytest.mark.cluster
def test_a_program_that_is_killed_says_so_with_what_it_printed(tmp_path: Path) -> None:
    end = run_program(tmp_path, "import os; print('last words', flush=True); os.kill(os.getpid(), 9)")
    assert end.outcome is ProgramOutcome.FAILED
    assert "SIGKILL" in end.text and "last words" in end.text


@pytest.mark.cluster
def test_a_program_that_nobody_waits_for_any_more_is_ended_with_its_children(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(
        "import subprocess, sys\nchild = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)\n"
        "open('started', 'w').write(str(child.pid))\nchild.wait()\n"
    )
    start = ProgramStart(
        program=ProgramDescription(path="job.py"),
        configuration={},
        rest_host="127.0.0.1",
        rest_port=1,
        rest_token="t",
        job_id_seed="seed",
    )

    def has_started() -> bool:
        return started.exists() and bool(started.read_text())

    def is_gone() -> bool:
        try:
            return bool(psutil.Process(int(started.read_text())).status() == psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return True

    async def run() -> None:
        running = asyncio.create_task(
            run_main(start, ProgramPlace(tmp_path, tmp_path / "out"), ChildProcesses())
        )
        await until(has_started)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await until(is_gone)

    started = tmp_path / "started"
    asyncio.run(run())


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def test_the_master_loads_no_module_that_runs_user_code() -> None:
    program = (
        "import sys, yarrow.am.yarn.running_master, yarrow.am.yarn.modes.application,"
        " yarrow.am.yarn.modes.per_job, yarrow.am.yarn.modes.session; print(*sys.modules)"
    )
    finished = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = set(finished.stdout.split())
    heavy = {"fastapi", "pydantic", "pyarrow", "numpy", "pandas", "polars", "cloudpickle", "skein", "kazoo"}
    assert not (heavy | {"yarrow.cli", "yarrow.container", "yarrow.datastream"}) & loaded
