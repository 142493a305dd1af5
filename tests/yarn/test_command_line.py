"""The `yarrow` command on a real YARN: sessions, jobs and programs of their own, and what is said about them."""

from __future__ import annotations

import os
import runpy
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import DEADLINE, Commands, Outcome, commands_in, end, read_until
from tests.yarn.rest import ask, client_secrets

FLIGHTS = Path(__file__).resolve().parents[2] / "examples" / "flights"


@pytest.fixture
def yarrow(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    with commands_in(hadoop, tmp_path) as commands:
        yield commands


@pytest.fixture(scope="module")
def flights_table() -> list[str]:
    """What the flights job prints, made by a plain loop."""
    table, _ = runpy.run_path(str(FLIGHTS / "plain.py"))["plain_delays"]()
    return [
        f"{origin:8}{carrier:8}{flights:9,}{mean:12.1f}{worst:8,}"
        for (origin, carrier), (flights, mean, worst) in sorted(table.items())
    ]


def table_of(text: str) -> list[str]:
    """The rows of the table that the flights job printed."""
    return [line for line in text.splitlines() if line.startswith(("EWR ", "JFK ", "LGA "))]


def test_sessions_take_jobs_by_properties_file_name_and_id_and_are_told_apart(
    yarrow: Commands, hdfs_folder: str, flights_table: list[str]
) -> None:
    shown = yarrow.ok("session", "-q").out
    assert "NodeManagers in the cluster: 2" in shown and "Queue: root.small (RUNNING)" in shown
    name = yarrow.name("session")
    # Two slots at most, so that a job of two beside another finds the session full.
    sizes = ("-n", "1", "-s", "2", "-tm", "1152", "-D", "slotmanager.number-of-slots.max=2")
    # An idle TaskExecutor goes soon, unless it is one to keep.
    session = yarrow.ok("session", "-d", "-nm", name, *sizes, "-Dresourcemanager.taskmanager-timeout=1 s")
    application = session.application
    kept = task_executors(yarrow, application, 1)
    assert "JobManager Web Interface: http://" in session.out
    assert f'echo "stop" | yarrow session -id {application}' in session.out
    assert len(yarrow.files) == 2

    # A plain run takes the session and names it; no Hadoop is needed for that, and no JVM started.
    plain = yarrow.ok(
        "run", "doubles.py", "--own", "flag", HADOOP_CONF_DIR="", JAVA_HOME="/nowhere", PATH="/bin"
    )
    assert f"Found Yarn properties file {yarrow.folder}/files/.yarrow-properties-" in plain.err
    assert name in plain.err
    assert "sum 999000 ['--own', 'flag']" in plain.out

    # Detached, by name; then a second one that finds no slot says so and gives up.
    endless = yarrow.ok("run", "-d", "-yid", name, "endless.py").job
    assert f"{endless} : endless (" in yarrow.ok("list", "-yid", application).out
    full = yarrow("run", "-yid", application, "-D", "slot.request.timeout=20 s", str(FLIGHTS / "delays.py"))
    assert full.status == 1
    assert "waits: it needs 2 slots" in full.err
    assert "no slots within 20 s (slot.request.timeout)" in full.err

    save(yarrow, hdfs_folder, "-yid", application, endless)
    target = ("-t", "yarn-session", f"-Dyarn.application.id={application}")
    stopped = yarrow.ok("stop", *target, "-p", hdfs_folder, endless)
    assert f"Savepoint completed. Path: {hdfs_folder}/savepoint-" in stopped.out
    again = yarrow.ok("run", "-d", "-yid", application, "endless.py").job
    # One that can wait runs when the session has room.
    waiting = yarrow.begin("run", "-yid", application, str(FLIGHTS / "delays.py"))
    said = yarrow.folder / "stderr"
    yarrow.eventually(lambda: "waits: it needs 2 slots" in said.read_text(), "the job says that it waits")
    assert f"Cancelled job {again}." in yarrow.ok("cancel", again).out
    printed, _ = waiting.communicate(timeout=DEADLINE)
    assert waiting.returncode == 0, said.read_text()
    assert table_of(printed) == flights_table

    failed = yarrow("run", "broken.py")
    assert failed.status == 1
    assert "ZeroDivisionError" in failed.err
    assert task_executors(yarrow, application, 1) == kept, "the one it has taken first is there all the time"

    second = yarrow.ok("session", "-d", "-nm", yarrow.name("second")).application
    several_are_told_apart(yarrow, application, name, second)
    ended = yarrow.ok("session", "-id", name, text="stop\n")
    assert f"{application} has ended (SUCCEEDED)." in ended.out
    assert yarrow.final_status(application) == "SUCCEEDED"
    assert not [file for file in yarrow.files if application in file]
    one_that_is_gone_is_named(yarrow, second)


def task_executors(yarrow: Commands, application: str, number: int) -> list[str]:
    """Names of those that have registered, once there are so many."""
    found: list[str] = []

    def registered() -> bool:
        secrets = client_secrets(yarrow.folder / "files", application)
        answer = ask(secrets.rest_address, secrets.rest_token, "/taskmanagers")
        found[:] = [entry["id"] for entry in answer["taskmanagers"]]
        return len(found) == number

    yarrow.eventually(registered, f"{number} TaskExecutors")
    return found


def several_are_told_apart(yarrow: Commands, first: str, name: str, second: str) -> None:
    assert first != second
    tokens = {yarrow.ok("token", named).out for named in (first, second, name)}
    assert len(tokens) == 2
    assert yarrow.ok("token").out == yarrow.ok("token", second).out
    assert "No running jobs." in yarrow.ok("list", "-yid", name).out


def one_that_is_gone_is_named(yarrow: Commands, second: str) -> None:
    yarrow.hadoop.kill_application(second)
    yarrow.final_status(second)
    gone = yarrow("run", "doubles.py")
    assert gone.status == 1
    (told,) = [line for line in gone.err.splitlines() if "has ended: KILLED" in line]
    assert f"{second} ({yarrow.name('second')}) has ended: KILLED" in told and "`yarrow session`" in told
    assert f"{yarrow.folder}/files/.yarrow-properties-" in gone.err
    assert "sum" not in gone.out


@pytest.mark.parametrize(
    "how", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.soak), signal.SIGKILL]
)
def test_an_attached_session_ends_with_its_command(yarrow: Commands, how: signal.Signals) -> None:
    # Who is asked to end says so to its session; only of one that is killed the session hears no more.
    silence = "20 s" if how is signal.SIGKILL else "1 h"
    beats = ("-D", "client.heartbeat.interval=500 ms", "-D", f"client.heartbeat.timeout={silence}")
    process = yarrow.begin("session", "-nm", yarrow.name("attached"), *beats)
    started = Outcome(0, read_until(process, "uses this session"), "")
    assert yarrow.state(started.application) == "RUNNING"
    assert "No running jobs." in yarrow.ok("list").out
    status = end(process, how)
    assert status == (-signal.SIGKILL if how is signal.SIGKILL else 130)
    assert yarrow.final_status(started.application) == "SUCCEEDED"


def test_a_job_of_its_own_ends_its_application(
    yarrow: Commands, hdfs_folder: str, flights_table: list[str]
) -> None:
    flags = ("-m", "yarn-cluster", "-ynm", yarrow.name("job"), "-yjm", "640", "-ytm", "768")
    flights = yarrow.ok("run", *flags, "-ys", "2", str(FLIGHTS / "delays.py"))
    assert table_of(flights.out) == flights_table
    assert yarrow.final_status(flights.application) == "SUCCEEDED"
    assert yarrow.files == []

    own = ("-D", f"yarn.application.name={yarrow.name('own')}")
    detached = yarrow.ok("run", "-t", "yarn-per-job", *own, "-d", "endless.py")
    application = detached.application
    assert f"yarrow cancel -yid {application} {detached.job}" in detached.out
    yarrow.eventually(lambda: "(RUNNING)" in yarrow.ok("list", "-yid", application).out, "the job runs")
    by_id = ("-D", f"yarn.application.id={application}")
    save(yarrow, hdfs_folder, "-t", "yarn-per-job", *by_id, detached.job)
    stopped = yarrow.ok("stop", "-yid", application, "-p", hdfs_folder, detached.job)
    assert "Savepoint completed." in stopped.out
    assert yarrow.final_status(application) == "SUCCEEDED"


def test_an_interrupted_job_leaves_no_application(yarrow: Commands) -> None:
    process = yarrow.begin("run", "-m", "yarn-cluster", "-ynm", yarrow.name("interrupted"), "endless.py")
    application = Outcome(0, read_until(process, "Job has been submitted"), "").application
    assert end(process, signal.SIGINT) == 130
    assert yarrow.final_status(application) == "KILLED"


def test_a_program_runs_in_its_application_alone(yarrow: Commands, flights_table: list[str]) -> None:
    (yarrow.folder / "where.py").write_text(
        (FLIGHTS / "delays.py").read_text() + "import os, sys\n"
        f"assert os.getcwd() != {str(yarrow.folder)!r} and os.getppid() != {os.getpid()}\n"
        "print('sum', sys.argv[1:], flush=True)\n"
    )
    flags = ("-t", "yarn-application", "-ynm", yarrow.name("application"), "-ys", "2")
    attached = ("-D", "execution.attached=true")
    done = yarrow.ok("run-application", *flags, *attached, "where.py", "its", "own")
    assert "sum" not in done.out and table_of(done.out) == []
    assert yarrow.final_status(done.application) == "SUCCEEDED"
    logs = logs_of(yarrow, done.application)
    assert "sum ['its', 'own']" in logs
    assert table_of(logs) == flights_table


def test_a_program_that_runs_on_is_driven_by_its_application_id(yarrow: Commands, hdfs_folder: str) -> None:
    started = yarrow.ok(
        "run-application", "-t", "yarn-application", "-ynm", yarrow.name("program"), "endless.py"
    )
    application = started.application
    assert f"yarn application -kill {application}" in started.out

    def running() -> str:
        lines = yarrow.ok("list", "-r", "-yid", application).out.splitlines()
        return next((line.split(" : ")[1] for line in lines if line.endswith("endless (RUNNING)")), "")

    yarrow.eventually(lambda: running() != "", "the job runs")
    job = running()
    save(yarrow, hdfs_folder, "-yid", application, job)
    assert "Cancelled job" in yarrow.ok("cancel", "-yid", application, job).out
    assert yarrow.final_status(application) == "KILLED"


def save(yarrow: Commands, folder: str, *arguments: str) -> None:
    """Takes a savepoint, as soon as all tasks run."""
    taken: list[Outcome] = []

    def done() -> bool:
        taken.append(yarrow("savepoint", *arguments, folder))
        assert taken[-1].status == 0 or "not RUNNING" in taken[-1].err, taken[-1]
        return taken[-1].status == 0

    yarrow.eventually(done, "a savepoint")
    assert f"Savepoint completed. Path: {folder}/savepoint-" in taken[-1].out


def logs_of(yarrow: Commands, application: str) -> str:
    """All that the containers of an application have logged, once YARN has collected it."""
    found: list[str] = []

    def collected() -> bool:
        found[:] = yarrow.hadoop.container_logs(application, 200_000).values()
        return any("sum" in text for text in found)

    yarrow.eventually(collected, f"the program's output in the logs of {application} within {DEADLINE:g} s")
    return "\n".join(found)
