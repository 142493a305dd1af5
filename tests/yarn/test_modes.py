"""What runs in the containers of an application on a real YARN: programs beside their master, TaskExecutors that are
lost, idle, over their memory or not granted."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, commands_in
from tests.yarn.rest import ask, client_secrets
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.testing.transactional_files import CommittedFiles

TASK_EXECUTOR = "yarrow.container.process.yarn_task_executor"
MASTER = "yarrow.am.yarn.application_master"
TWO_JOBS = """
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.from_collection([1, 2, 3]).map(lambda x: x * 2).print()
first = env.execute("first")
print("first took", first.get_net_runtime(), flush=True)
with env.from_collection([4, 5, 6]).map(lambda x: x * 2).execute_and_collect("second") as rows:
    total = sum(rows)
raise RuntimeError(f"after two jobs: {total}")
"""
ONCE = """
import os, sys, time
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

killed = sys.argv[2]

def slowly(number):
    time.sleep(0.002)
    # The last rows come when the test has killed a TaskExecutor.
    while number > 3000 and not os.path.exists(killed):
        time.sleep(0.05)
    return (number % 7, number)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.enable_checkpointing(500)
rows = env.from_sequence(1, 4000).map(slowly).key_by(lambda row: row[0]).map(lambda row: row)
rows.sink_to(TransactionalFiles(sys.argv[1]))
env.execute("once")
"""


@pytest.fixture
def yarrow(hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path) -> Iterator[Commands]:
    configuration = {
        "execution.checkpointing.dir": hdfs_folder,
        "jobmanager.archive.fs.dir": f"{hdfs_folder}/archive",
        "resourcemanager.taskmanager-timeout": "1 s",
        "heartbeat.interval": "1 s",
        "heartbeat.timeout": "20 s",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "3",
        "restart-strategy.fixed-delay.delay": "100 ms",
    }
    for name, text in (("two_jobs", TWO_JOBS), ("once", ONCE)):
        (tmp_path / f"{name}.py").write_text(text)
    with commands_in(hadoop, tmp_path, configuration) as commands:
        yield commands


class Session:
    """A session that was started for one test, asked by REST."""

    def __init__(self, yarrow: Commands, name: str, *arguments: str) -> None:
        self.yarrow = yarrow
        self.application = yarrow.ok("session", "-d", "-nm", yarrow.name(name), *arguments).application
        self._secrets = client_secrets(yarrow.folder / "files", self.application)

    def get(self, path: str) -> Any:
        return ask(self._secrets.rest_address, self._secrets.rest_token, path)

    def submit(self, *arguments: str) -> str:
        """Submits detached; the job's id."""
        return self.yarrow.ok("run", "-d", "-yid", self.application, *arguments).job

    def status(self, job: str) -> str:
        return str(self.get(f"/jobs/{job}/status")["status"])

    def task_executors(self) -> list[int]:
        """Process ids of those in containers."""
        found = self.yarrow.hadoop.container_processes(self.application)
        return [process.pid for process in found if process.command.endswith(TASK_EXECUTOR)]

    def stop(self) -> None:
        self.yarrow.ok("session", "-id", self.application, text="stop\n")
        assert self.yarrow.final_status(self.application) == "SUCCEEDED"


def test_the_jobs_of_a_program_follow_each_other_and_its_error_is_the_applications(
    yarrow: Commands, hadoop: HadoopCluster
) -> None:
    attached = ("-D", "execution.attached=true")
    outcome = yarrow("run", "-t", "yarn-application", "-ynm", yarrow.name("two"), *attached, "two_jobs.py")
    assert outcome.status == 1
    assert "RuntimeError: after two jobs: 30" in outcome.err
    assert yarrow.final_status(outcome.application) == "FAILED"
    diagnostics = str(hadoop.application(outcome.application)["diagnostics"])
    assert "RuntimeError: after two jobs: 30" in diagnostics and "two_jobs.py" in diagnostics
    assert "yarrow/cli" not in diagnostics, "frames of the user alone come first"


def test_a_killed_task_executor_is_replaced_and_an_idle_one_given_back(
    yarrow: Commands, hadoop: HadoopCluster
) -> None:
    session = Session(yarrow, "replaced")
    output = yarrow.folder / "output"
    killed = yarrow.folder / "killed"
    job = session.submit("once.py", str(output), str(killed))
    committed = CommittedFiles(output)
    yarrow.eventually(lambda: output.exists() and len(committed.rows()) > 0, "a checkpoint is complete")
    (first,) = session.task_executors()
    os.kill(first, signal.SIGKILL)
    killed.touch()
    yarrow.eventually(lambda: session.status(job) == "FINISHED", "the job goes on to its end")
    assert sorted(committed.rows(), key=lambda row: row[1]) == [(n % 7, n) for n in range(1, 4001)]
    assert committed.committed_twice() == []
    (failure, *_) = session.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    assert failure["stacktrace"]
    yarrow.eventually(lambda: session.task_executors() == [], "the idle TaskExecutor is given back")
    logs = hadoop.container_logs(session.application, 1 << 20).values()
    asked = sum(text.count("asked YARN for a container") for text in logs)
    assert asked == 2, "no more containers than needed: the first, and the one in its place"
    session.stop()


def test_what_is_waited_for_is_said(
    yarrow: Commands, hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> None:
    # The queue has 10 % of the cluster: room for the master and no more.
    session = Session(yarrow, "waits", "-qu", "small", "-tm", "1000m")
    once = ("-Dslot.request.timeout=30s", "-Drestart-strategy.type=none")
    job = session.submit(*once, "endless.py")
    yarrow.eventually(lambda: "has not granted" in waiting_for(session, job), "a reason is given")
    assert "queue small" in waiting_for(session, job)
    yarrow.eventually(lambda: session.status(job) == "FAILED", "the job gives up")
    text = json.dumps(session.get(f"/jobs/{job}/exceptions"))
    assert "slot.request.timeout" in text and "queue small" in text
    log = "".join(
        text for name, text in hadoop.container_logs(session.application).items() if "jobmanager.log" in name
    )
    assert "YARN has not granted 1 containers of 1000 MB" in log
    session.stop()
    with file_system_for(hdfs_folder).open(f"{hdfs_folder}/archive/{job}") as file:
        archived = {entry["path"]: json.loads(entry["json"]) for entry in json.load(file)["archive"]}
    assert archived[f"/jobs/{job}"]["state"] == "FAILED", "its end can be read when the session is gone"


@pytest.mark.parametrize("half", [MASTER, "com.anaconda.skein.ApplicationMaster"])
def test_neither_half_of_the_masters_container_outlives_the_other(
    yarrow: Commands, hadoop: HadoopCluster, hadoop_environment: None, half: str
) -> None:
    session = Session(yarrow, "halves", "-Dyarn.application-attempts=1")
    (process,) = [
        one.pid
        for one in hadoop.container_processes(session.application)
        if half in one.command and not one.command.startswith(("/bin/bash", "bash"))
    ]
    os.kill(process, signal.SIGKILL)
    yarrow.eventually(lambda: not hadoop.container_processes(session.application), "nothing of it is left")
    assert yarrow.final_status(session.application) == "FAILED"
    # Who would have removed its files is dead: the user's next deployment does.
    with YarnClusterDescriptor(Settings()) as next_one:
        remove_abandoned(next_one.client((b"", b"")))


def waiting_for(session: Session, job: str) -> str:
    return str(session.get(f"/jobs/{job}")["waiting-for"])
