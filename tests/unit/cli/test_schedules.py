"""`yarrow schedule`, and schedules in `list` and `cancel`, against a REST server over a cluster in memory."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from tests.unit.am.rest.fakes import JOB, FakeCluster
from tests.unit.am.rest.running import run
from yarrow.am.rest.server.server import RestServer
from yarrow.cli.main import main
from yarrow.cli.schedule_commands import schedule_lines
from yarrow.common.job_status import JobStatus
from yarrow.common.values.schedule import Schedule
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import decode_job_graph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.rpc.messages import ScheduledRun

PROGRAM = """\
import sys
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_collection([1, 2]).print()
env.execute(sys.argv[1])
raise SystemExit("the program ran on")
"""


def command(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """The exit status of an action on the cluster."""

    async def served() -> int:
        server = RestServer(cluster.services)
        await server.start("127.0.0.1", [0])
        try:
            action, *rest = arguments
            address = f"127.0.0.1:{server.port}"
            monkeypatch.setattr(sys, "argv", ["yarrow", action, "-m", address, *rest])
            return await asyncio.to_thread(main)
        finally:
            await server.stop()

    return run(served())


@pytest.fixture
def cluster(tmp_path: Path) -> FakeCluster:
    return FakeCluster(tmp_path)


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "job.py"
    path.write_text(PROGRAM)
    return str(path)


def test_a_program_is_scheduled_listed_and_cancelled(
    cluster: FakeCluster,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    mode = "-Dexecution.runtime-mode=BATCH"
    times = ("--cron", "0 3 * * *", "--time-zone", "Europe/Berlin")
    assert command(cluster, monkeypatch, "schedule", *times, mode, program, "nightly") == 0
    ((schedule_id, overview),) = cluster.dispatcher.schedules.items()
    assert overview.schedule == Schedule.of_cron("0 3 * * *", "Europe/Berlin")
    (encoded,) = (blob for blob in cluster.dispatcher.blobs.values() if b"nightly" in blob)
    graph = decode_job_graph(encoded)
    assert (graph.name, graph.job_type, graph.client_heartbeat_timeout) == ("nightly", JobType.BATCH, 0)
    assert f"Schedule has been submitted with ID {schedule_id}" in capsys.readouterr().out
    assert command(cluster, monkeypatch, "list", "-s") == 0
    printed = capsys.readouterr().out
    assert f"{schedule_id} : nightly (0 3 * * * Europe/Berlin; 0 runs)" in printed
    assert command(cluster, monkeypatch, "cancel", schedule_id) == 0
    assert capsys.readouterr().out.splitlines() == [
        f"Cancelled schedule {schedule_id}.",
        f"Its run {JOB} goes on: `yarrow cancel` with that id cancels it.",
    ]
    assert not cluster.dispatcher.schedules
    assert command(cluster, monkeypatch, "cancel", JOB) == 0
    assert f"Cancelled job {JOB}." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "give one of the two"),
        (("--every", "1 h", "--cron", "0 3 * * *"), "give one of the two"),
        (("--every", "1 h", "--time-zone", "UTC"), "--time-zone belongs to --cron"),
        (("--every", "now and then"), "'now and then' cannot be read"),
        (("--cron", "0 3"), "'0 3' cannot be read"),
        (("--cron", "0 3 * * *", "--time-zone", "Mars"), "no time zone 'Mars'"),
        (("--every", "1 h", "-t", "local"), "such a cluster ends with its job"),
    ],
)
def test_bad_flags_are_named_and_nothing_is_scheduled(
    flags: tuple[str, ...],
    message: str,
    cluster: FakeCluster,
    program: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command(cluster, monkeypatch, "schedule", *flags, program, "name") == 1
    assert message in capsys.readouterr().err
    assert not cluster.dispatcher.schedules and not cluster.dispatcher.blobs


def test_the_lines_of_a_schedule_tell_its_runs() -> None:
    failed = ScheduledRun(
        job_id=JobID("2" * 32),
        due_time=0,
        status=JobStatus.FAILED,
        end_time=0,
        failure="builtins.ValueError: x",
    )
    body = {
        "id": "1" * 32,
        "name": "report",
        "interval": 90 * 60_000,
        "cron": None,
        "next-time": 0,
        "runs": 4,
        "missed": 2,
        "running": {"jid": "3" * 32},
        "ended": [{"jid": failed.job_id, "end-time": 0, **msgspec.to_builtins(failed)}],
    }
    first, second, third = schedule_lines(body).splitlines()
    assert first.endswith(f": {'1' * 32} : report (every 1:30:00; 4 runs, 2 missed)")
    assert second == f"    run {'3' * 32} runs"
    assert third.startswith(f"    run {'2' * 32} was FAILED at ") and third.endswith("builtins.ValueError: x")
