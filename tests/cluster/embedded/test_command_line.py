"""The `yarrow` command in processes of its own: programs, exit statuses, the lines scripts look for."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.cluster.embedded.programs import DEADLINE, Outcome, Program
from tests.cluster.embedded.waiting import wait_until
from tests.support.free_ports import free_port
from yarrow.standalone.cluster_directory import start_ticks
from yarrow.standalone.leader_announcements import LeaderAnnouncements

pytestmark = pytest.mark.cluster

_JOB = """
import sys
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
print(env.get_parallelism(), sys.argv[1:], __name__)
env.set_parallelism(1)
env.from_collection([1, 2]).map(lambda x: x * 10).print()
result = env.execute("tens")
print("after")
"""
#: It takes its time for each row: a job that is only to be there leaves the cores to others.
_ENDLESS = """
import time
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.from_sequence(1, 10**15).map(lambda x: time.sleep(0.01) or x).filter(lambda x: False).print()
env.execute("endless")
"""


@dataclass(frozen=True)
class CommandLine:
    """Calls `yarrow` in a folder, with a configuration of its own."""

    folder: Path
    conf: Path

    def __call__(self, *arguments: str, text: str | None = None) -> Outcome:
        environment = {**os.environ, "YARROW_CONF_DIR": str(self.conf)}
        done = subprocess.run(
            [sys.executable, "-m", "yarrow.cli.main", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env=environment,
            timeout=DEADLINE,
            input=text,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.fixture
def yarrow(tmp_path: Path) -> CommandLine:
    conf = tmp_path / "conf"
    conf.mkdir()
    (conf / "config.yaml").write_text(f"env.pid.dir: {tmp_path / 'pids'}\n")
    (tmp_path / "job.py").write_text(_JOB)
    return CommandLine(tmp_path, conf)


def test_run_does_what_python_does(yarrow: CommandLine) -> None:
    outcome = yarrow("run", "-p", "3", "job.py", "--input", "x", "-p", "7")
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0] == "3 ['--input', 'x', '-p', '7'] __main__"
    assert re.fullmatch(r"Job has been submitted with JobID [0-9a-f]{32}", lines[1])
    assert lines[2:4] == ["10", "20"]
    assert lines[-1] == "after"


@pytest.mark.parametrize(
    "flags", [["-py", "job.py"], ["-pym", "job"], ["-pyfs", "lib", "-pym", "package.main"]]
)
def test_ways_to_name_a_program(yarrow: CommandLine, flags: list[str]) -> None:
    package = yarrow.folder / "lib" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tens.py").write_text("def ten(x):\n    return x * 10\n")
    text = _JOB.replace("lambda x: x * 10", "ten").replace(
        "import sys", "import sys\nfrom package.tens import ten"
    )
    (package / "main.py").write_text(text)
    outcome = yarrow("run", *flags)
    assert outcome.status == 0, outcome.err
    assert {"10", "20", "after"} <= set(outcome.out.splitlines())


@pytest.mark.parametrize("flags", [["app.zip"], ["-c", "app.start", "app.zip"], ["folder"]])
def test_programs_in_archives(yarrow: CommandLine, flags: list[str]) -> None:
    package = yarrow.folder / "folder" / "app"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "tens.py").write_text("def ten(x):\n    return x * 10\n")
    text = _JOB.replace("lambda x: x * 10", "ten").replace(
        "import sys", "import sys\nfrom app.tens import ten"
    )
    (package / "start.py").write_text(text)
    (package.parent / "__main__.py").write_text(text)
    shutil.make_archive(str(yarrow.folder / "app"), "zip", package.parent)
    if flags[-1] != "folder":
        shutil.rmtree(package.parent)
    outcome = yarrow("run", *flags, "--flag")
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0].endswith("['--flag'] __main__")
    assert {"10", "20", "after"} <= set(lines)


def test_a_failure_is_reported_with_the_users_trace(yarrow: CommandLine) -> None:
    (yarrow.folder / "job.py").write_text(_JOB.replace("x * 10", "x / 0"))
    outcome = yarrow("run", "job.py")
    assert outcome.status == 1
    head = f"{'-' * 60}\n The program finished with the following exception:\n\nTraceback (most recent call last):\n"
    assert head in outcome.err
    rest = outcome.err.partition(head)[2]
    assert rest.splitlines()[0].endswith("in <lambda>")
    assert "ZeroDivisionError" in rest


def test_what_main_raises_is_shown_from_its_own_frame_on(yarrow: CommandLine) -> None:
    (yarrow.folder / "job.py").write_text("def main():\n    raise KeyError('nothing')\nmain()\n")
    outcome = yarrow("run", "job.py")
    assert outcome.status == 1
    assert 'File "job.py", line 3, in <module>' in outcome.err
    assert "yarrow" not in outcome.err


def test_threads_of_a_program_run_where_the_command_line_says(yarrow: CommandLine) -> None:
    threaded = "import threading\ndef job():\n" + "".join(f"    {line}\n" for line in _JOB.splitlines())
    (yarrow.folder / "job.py").write_text(
        f"{threaded}thread = threading.Thread(target=job)\nthread.start()\nthread.join()\n"
    )
    outcome = yarrow("run", "-p", "6", "job.py")
    assert outcome.status == 0, outcome.err
    assert outcome.out.startswith("6 [] __main__\nJob has been submitted with JobID ")


def test_the_programs_exit_status_is_the_commands(yarrow: CommandLine) -> None:
    (yarrow.folder / "job.py").write_text("raise SystemExit(5)")
    assert yarrow("run", "job.py").status == 5


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nowhere.py"], "There is no program 'nowhere.py'"),
        (["run"], "No program"),
        (["run", "--bogus", "job.py"], "There is no flag --bogus"),
        (["run", "-p", "none", "job.py"], "-p"),
        (["run", "-d", "job.py"], "yarrow start-cluster"),
        (["run", "-D", "no.such.key=1", "job.py"], "no.such.key"),
        (["run", "-m", "nonsense", "job.py"], "host:port"),
        (["run", "-s", "/nowhere", "-cm", "legacy", "job.py"], "use no_claim"),
        (["list", "-m", "localhost:1"], "No REST server answers at http://localhost:1"),
        (["cancel"], "job_id"),
    ],
)
def test_errors_are_reported_in_one_form(yarrow: CommandLine, arguments: list[str], said: str) -> None:
    outcome = yarrow(*arguments)
    assert outcome.status == 1
    assert f"{'-' * 60}\n The program finished with the following exception:\n" in outcome.err
    assert said.lower() in outcome.err.lower()
    assert outcome.out in ("", "Waiting for response...\n")


def test_info_plans_and_starts_nothing(yarrow: CommandLine) -> None:
    outcome = yarrow("info", "-p", "5", "job.py")
    assert outcome.status == 0, outcome.err
    lines = outcome.out.splitlines()
    assert lines[0] == "5 [] __main__"
    assert lines[1] == "----------------------- Execution Plan -----------------------"
    assert json.loads(lines[2])["nodes"][0]["type"] == "Source: Collection Source"
    assert "after" not in lines


def test_info_shows_the_code_of_the_chains(yarrow: CommandLine) -> None:
    (yarrow.folder / "job.py").write_text("""
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
def never(*values):
    raise AssertionError("info calls no function")
env.from_collection([1]).map(never).filter(never).key_by(never).reduce(never).print()
env.execute()
""")
    outcome = yarrow("info", "--code", "-p", "2", "job.py")
    assert outcome.status == 0, outcome.err
    chains = dict(part.split("\n", 1) for part in ("\n" + outcome.out).split("\n# ")[1:])
    mapping = chains["Map -> Filter"]
    assert mapping.startswith("def input_0(rows")
    assert "= map_0(v0)" in mapping
    for name, code in chains.items():
        compile(code, name, "exec")


def test_the_shell_ships_what_is_defined_in_it(yarrow: CommandLine) -> None:
    text = (
        "env.set_parallelism(1) and None\n"
        "class Box:\n    def __init__(self, value): self.value = value\n\n"
        "env.from_collection([1, 2]).map(Box).map(lambda box: box.value + 1).print() and None\n"
        "result = env.execute()\n"
    )
    outcome = yarrow("shell", text=text)
    assert outcome.status == 0, outcome.err
    assert [line.removeprefix(">>> ") for line in outcome.out.splitlines() if "3" in line or "2" in line]
    assert "2\n" in outcome.out and "3\n" in outcome.out


def test_ctrl_c_ends_a_run_with_one_line(yarrow: CommandLine, tmp_path: Path) -> None:
    program = Program(
        tmp_path,
        _ENDLESS.replace("lambda x: False", "lambda x: x < 3"),
        "-m",
        "yarrow.cli.main",
        "run",
        "job.py",
        YARROW_CONF_DIR=str(yarrow.conf),
    )
    while "> " not in program.read_line():
        pass
    program.processes()
    program.signal(signal.SIGINT)
    outcome = program.wait()
    assert outcome.status == 130
    assert re.fullmatch(r"Job [0-9a-f]{32} was cancelled by Ctrl-C\.\n", outcome.err)
    program.assert_nothing_left()
    program.assert_no_files_left()


@pytest.fixture
def standalone(yarrow: CommandLine) -> Iterator[CommandLine]:
    """A cluster of two TaskExecutors with two slots each, started and stopped by the command."""
    (yarrow.conf / "config.yaml").write_text(
        f"env.pid.dir: {yarrow.folder / 'pids'}\n"
        f"jobmanager.rpc.port: {free_port()}\n"
        f"rest.port: {free_port()}\n"
        "jobmanager.bind-host: localhost\n"
        "taskmanager.bind-host: localhost\n"
        "taskmanager.numberOfTaskSlots: 2\n"
    )
    (yarrow.conf / "workers").write_text("localhost\nlocalhost\n")
    started = yarrow("start-cluster")
    try:
        assert started.status == 0, started.err
        yield yarrow
    finally:
        stopped = yarrow("stop-cluster")
    assert stopped.status == 0, stopped.err
    # Workers end with their TaskExecutor, and are adopted for a moment.
    wait_until(lambda: not [process for process in psutil.process_iter() if _has(process, yarrow.conf)])


def _has(process: psutil.Process, conf: Path) -> bool:
    try:
        return bool(process.environ().get("YARROW_CONF_DIR") == str(conf))
    except psutil.Error:
        return False


def test_a_standalone_cluster_from_start_to_stop(standalone: CommandLine) -> None:
    yarrow = standalone
    assert yarrow("list").out == "Waiting for response...\nNo running jobs.\nNo scheduled jobs.\n"
    again = yarrow("start-cluster")
    assert again.status == 1 and "runs already" in again.err

    attached = yarrow("run", "job.py")
    assert attached.status == 0, attached.err
    assert "Running on the cluster at http://localhost:" in attached.err
    lines = attached.out.splitlines()
    assert re.fullmatch(r"Job has been submitted with JobID [0-9a-f]{32}", lines[1])
    assert "10" not in lines, "print() sinks of a cluster write to its TaskExecutors' files"
    logs = list(yarrow.folder.glob("pids/*/log/taskexecutor-*.out"))
    assert sorted("".join(log.read_text() for log in logs).split()) == ["10", "20"]

    (yarrow.folder / "endless.py").write_text(_ENDLESS)
    detached = yarrow("run", "-d", "-p", "4", "endless.py")
    assert detached.status == 0, detached.err
    [job_id] = re.findall(r"Job has been submitted with JobID ([0-9a-f]{32})", detached.out)
    wait_until(lambda: f": {job_id} : endless (RUNNING)" in yarrow("list", "-r").out)
    assert yarrow("cancel", job_id).out == f"Cancelling job {job_id}.\nCancelled job {job_id}.\n"
    wait_until(lambda: f"{job_id} : endless (CANCELED)" in yarrow("list", "-a").out)

    ended = yarrow("cancel", job_id)
    assert ended.status == 1 and f"Could not cancel job {job_id}: it is CANCELED already." in ended.err

    stopped = yarrow("stop-cluster").out
    assert len(re.findall(r"Stopping taskexecutor daemon \(pid: \d+\)", stopped)) == 2
    assert len(re.findall(r"Stopping standalonesession daemon \(pid: \d+\)", stopped)) == 1
    assert re.findall(r"No (\w+) daemon to stop", yarrow("stop-cluster").out) == [
        "taskexecutor",
        "standalonesession",
    ]


def test_results_files_and_failures_of_a_remote_job(standalone: CommandLine) -> None:
    yarrow = standalone
    (yarrow.folder / "lib").mkdir()
    (yarrow.folder / "lib" / "tenfold.py").write_text("def tenfold(x):\n    return 10 * x\n")
    (yarrow.folder / "job.py").write_text("""
from dataclasses import dataclass
from yarrow.datastream import StreamExecutionEnvironment
import tenfold

@dataclass
class Box:
    value: int

env = StreamExecutionEnvironment.get_execution_environment()
rows = env.from_sequence(1, 30_000).map(tenfold.tenfold).map(Box)
boxes = list(rows.execute_and_collect())
print(type(boxes[0]) is Box, sum(box.value for box in boxes))
with env.from_sequence(1, 10**15).map(lambda x: x).execute_and_collect() as endless:
    next(endless)
env.from_collection([0]).map(lambda x: 1 // x).print()
env.execute("fails")
""")
    outcome = yarrow("run", "-p", "2", "-pyfs", "lib/tenfold.py", "job.py")
    assert f"True {10 * 30_000 * 30_001 // 2}" in outcome.out.splitlines(), outcome.err
    assert outcome.status == 1
    trace = outcome.err.partition("exception:\n\n")[2]
    assert trace.startswith("Traceback (most recent call last):")
    assert "ZeroDivisionError" in trace


def test_without_an_action_the_actions_are_shown(yarrow: CommandLine) -> None:
    alone, asked = yarrow(), yarrow("-h")
    assert (alone.status, asked.status) == (1, 0)
    assert alone.out == asked.out
    assert "..." not in asked.out.partition("Commands:")[2]
    assert alone.err == ""


def beats(timeout_seconds: int) -> list[str]:
    """Flags of a client that a master waits for so long."""
    timeout = f"client.heartbeat.timeout={timeout_seconds} s"
    return ["-D", "client.heartbeat.interval=200 ms", "-D", timeout]


def test_a_killed_client_takes_its_job_with_it_if_that_was_asked_for(standalone: CommandLine) -> None:
    (standalone.folder / "job.py").write_text(_ENDLESS)
    # The one that lives is heard within that time, also on a busy machine.
    seconds = {"lives": 20, "dies": 10, "leaves": 10}
    flags = {"lives": ["-sae"], "dies": ["-sae"], "leaves": []}
    clients = [
        subprocess.Popen(
            [sys.executable, "-m", "yarrow.cli.main", "run", *flags[name], *beats(seconds[name]), "job.py"],
            env={**os.environ, "YARROW_CONF_DIR": str(standalone.conf)},
            cwd=standalone.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        for name in flags
    ]

    def jobs(kind: str) -> set[str]:
        return set(re.findall(rf"([0-9a-f]{{32}}) : endless \({kind}\)", standalone("list", "-a").out))

    try:
        lives, dies, leaves = [_job_of(client) for client in clients]
        assert jobs("RUNNING") == {lives, dies, leaves}
        clients[1].kill()
        clients[2].kill()
        wait_until(lambda: dies in jobs("CANCELED"))
        # Its heartbeats come, and the other needs none.
        assert jobs("RUNNING") == {lives, leaves}
        clients[0].kill()
        wait_until(lambda: lives in jobs("CANCELED"))
        assert standalone("cancel", leaves).status == 0
    finally:
        for client in clients:
            client.kill()
            client.communicate()


def _job_of(client: subprocess.Popen[str]) -> str:
    assert client.stdout is not None
    for line in client.stdout:
        if "JobID" in line:
            return line.split()[-1]
    raise AssertionError("the client has submitted nothing")


def test_task_executors_follow_another_job_manager(standalone: CommandLine) -> None:
    yarrow = standalone
    [directory] = (yarrow.folder / "pids").iterdir()
    daemons = json.loads((directory / "daemons.json").read_text())
    [master] = [entry["pid"] for entry in daemons if entry["role"] == "standalonesession"]
    os.kill(master, signal.SIGTERM)
    wait_until(lambda: start_ticks(master) is None)
    leaders = LeaderAnnouncements(directory)
    assert leaders.present() is None
    log = yarrow.folder / "second.log"
    with log.open("wb") as output:
        second = subprocess.Popen(
            [sys.executable, "-m", "yarrow.cli.main", "jobmanager"],
            env={**os.environ, "YARROW_CONF_DIR": str(yarrow.conf)},
            stdout=output,
            stderr=output,
        )
    try:
        wait_until(lambda: leaders.present() is not None, log.read_text)
        outcome = yarrow("run", "-t", "remote", "-p", "4", "job.py")
        assert outcome.status == 0, outcome.err
    finally:
        second.terminate()
        assert second.wait(120) == 0, log.read_text()
