"""Bounded jobs with `spark.master: yarn`: executors in an application of Spark's own, which ends with its job.

Faults hit processes by their ids, in the map stage and while a sink has written and not committed. Each job's output is
exact afterwards, or it has failed with its cause and has committed nothing; nothing is left on YARN and HDFS.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.process_names import command_of
from tests.yarn.batch.bounded_jobs import (
    BROKEN_BATCH,
    CONFIGURATION_ON_YARN,
    MASTER,
    ROWS,
    Application,
    Output,
    bounded_session,
    sparks,
)
from tests.yarn.commands import Commands, commands_in
from tests.yarn.highly_available import high_availability, zookeeper_client
from tests.yarn.waiting import GRACE, until
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.testing.transactional_files import CommittedFiles

ROOT = f"/yarrow-executors-{os.getpid()}"
EXECUTOR = "YarnCoarseGrainedExecutorBackend"
#: Sums by key into a folder. The first task of the map stage, or of the stage that writes, waits for a file. Or the
#: second commit does, when all committables are stored and one is committed.
SUMS_BY_STAGE = """
import os, sys, time
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate, stage = sys.argv[1:]

def wait():
    with open(f"{gate}.part", "w") as process:
        process.write(str(os.getpid()))
    os.replace(f"{gate}.part", f"{gate}.reached")
    while not os.path.exists(gate):
        time.sleep(0.05)

def mapped(number):
    if stage == "map" and number == 1000:
        wait()
    return (number % 7, number)

def between(row):
    # The other task has written all of its rows by then, and this one may have.
    if stage == "sink" and row[0] == 6:
        wait()
    return row

class WaitingFiles(TransactionalFiles):
    def commit(self, transaction):
        if stage == "commit" and os.path.exists(os.path.join(folder, "commits")):
            wait()
        super().commit(transaction)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
sums = env.from_sequence(1, 1000).map(mapped).key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sums.map(between).sink_to(WaitingFiles(folder))
env.execute("sums")
"""


class BoundedJob:
    """A job of SUMS_BY_STAGE, or of a program with arguments alike, whose task waits, and its Spark application."""

    def __init__(
        self,
        application: Application,
        output: Output,
        stage: str,
        *flags: str,
        program: str = "sums_by_stage.py",
    ) -> None:
        self.application = application
        self.output = output
        arguments = (program, *output.arguments, stage)
        self.id = application.yarrow.ok("run", "-d", "-yid", application.id, *flags, *arguments).job

    def until_it_waits(self) -> None:
        self.application.yarrow.eventually(lambda: self.output.is_waiting, "a task waits")

    @property
    def worker(self) -> int:
        """The Python process of the task that waits."""
        return int(Path(f"{self.output.gate}.reached").read_text())

    @property
    def executor(self) -> int:
        """The Java above it."""
        above = psutil.Process(self.worker).parents()
        return next(int(process.pid) for process in above if EXECUTOR in command_of(process))

    @property
    def spark(self) -> str:
        """YARN's id of its Spark application."""
        return str(self.application.get(f"/jobs/{self.id}")["spark-application"])

    def failures(self) -> str:
        """All that it has gone through: a slow machine may add some."""
        entries = self.application.get(f"/jobs/{self.id}/exceptions")["exceptionHistory"]["entries"]
        return "\n".join(str(failure["stacktrace"]) for failure in entries)

    def until(self, status: str) -> None:
        self.application.yarrow.eventually(lambda: self.application.status(self.id) == status, status)

    def finishes_exactly(self) -> None:
        self.output.open_gate()
        self.until("FINISHED")
        self.output.assert_exact()


def write_programs(folder: Path) -> None:
    (folder / "sums_by_stage.py").write_text(SUMS_BY_STAGE)
    (folder / "broken_batch.py").write_text(BROKEN_BATCH)


@pytest.fixture(scope="module")
def session(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """A session for the tests whose faults it survives."""
    folder = tmp_path_factory.mktemp("session")
    write_programs(folder)
    with bounded_session(hadoop, folder, CONFIGURATION_ON_YARN, "executors") as started:
        yield started


@pytest.fixture
def alone(hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path) -> Iterator[Commands]:
    """Commands for applications of a test's own."""
    write_programs(tmp_path)
    with commands_in(hadoop, tmp_path, CONFIGURATION_ON_YARN) as yarrow:
        yield yarrow


def living(hadoop: HadoopCluster, owner: str) -> list[str]:
    return [
        str(one["id"])
        for one in sparks(hadoop, owner)
        if one["state"] not in ("FINISHED", "FAILED", "KILLED")
    ]


def until_spark_is_gone(yarrow: Commands, owner: str) -> None:
    """None of Spark's applications lives, and no process of one."""

    def is_gone() -> bool:
        names = [str(one["id"]) for one in sparks(yarrow.hadoop, owner)]
        return not living(yarrow.hadoop, owner) and not any(map(yarrow.hadoop.container_processes, names))

    yarrow.eventually(is_gone, "nothing of Spark is on YARN")


def test_a_job_has_an_application_of_its_own_with_our_queue_and_tags_which_rest_names(
    session: Application, output: Output, hadoop: HadoopCluster
) -> None:
    job = BoundedJob(session, output, "map")
    job.until_it_waits()
    details = session.get(f"/jobs/{job.id}")
    assert details["spark-master"] == "yarn"
    report = hadoop.application(details["spark-application"])
    assert report["state"] == "RUNNING" and report["applicationType"] == "SPARK"
    assert report["name"] == details["name"] == "sums"
    assert report["queue"] == hadoop.application(session.id)["queue"]
    assert {session.id, f"yarrow-job-{job.id}"} <= set(report["applicationTags"].split(","))
    # The job begins when the first has come.
    session.yarrow.eventually(lambda: executors_of(hadoop, report["id"]) == 2, "it has both executors")
    processes = hadoop.container_processes(report["id"])
    for process in [*processes, *hadoop.container_processes(session.id)]:
        assert "authenticate.secret" not in process.command
    secrets = {
        name for process in processes for name in variables_of(process.pid) if "SECRET" in name.upper()
    }
    # Spark's own, by which an executor knows the Python processes below it.
    assert secrets <= {"PYTHON_WORKER_FACTORY_SECRET"}
    job.finishes_exactly()
    until_spark_is_gone(session.yarrow, session.id)
    assert hadoop.application(report["id"])["finalStatus"] == "SUCCEEDED"
    session.until_driver_is_gone()


def executors_of(hadoop: HadoopCluster, application: str) -> int:
    """The number of executors that run; YARN starts each by shells."""
    found = [
        each.command.split() for each in hadoop.container_processes(application) if EXECUTOR in each.command
    ]
    return sum(command[0].endswith("/java") for command in found)


def variables_of(pid: int) -> dict[str, str]:
    """The environment of a process; none if it has ended."""
    try:
        return dict(psutil.Process(pid).environ())
    except psutil.Error:
        return {}


def kill_executor(job: BoundedJob) -> None:
    os.kill(job.executor, signal.SIGKILL)


def kill_worker(job: BoundedJob) -> None:
    os.kill(job.worker, signal.SIGKILL)


@pytest.mark.parametrize(
    ("stage", "kill"),
    [
        ("map", kill_executor),
        ("sink", kill_worker),
        pytest.param("map", kill_worker, marks=pytest.mark.soak),
        pytest.param("sink", kill_executor, marks=pytest.mark.soak),
    ],
)
def test_a_lost_task_is_run_again_in_the_same_application(
    session: Application, output: Output, stage: str, kill: Callable[[BoundedJob], None]
) -> None:
    job = BoundedJob(session, output, stage)
    job.until_it_waits()
    spark = job.spark
    kill(job)
    job.finishes_exactly()
    assert job.spark == spark
    until_spark_is_gone(session.yarrow, session.id)


def test_an_application_of_spark_that_yarn_kills_is_replaced_and_named(
    session: Application, output: Output, hadoop: HadoopCluster
) -> None:
    job = BoundedJob(session, output, "sink")
    job.until_it_waits()
    former = job.spark
    output.forget_waiting()
    hadoop.kill_application(former)
    # YARN may kill one executor before the other, which runs the task once more.
    session.yarrow.eventually(lambda: job.spark not in ("", former), "another application runs")
    job.until_it_waits()
    assert former in job.failures() and "KILLED" in job.failures()
    assert "py4j" not in job.failures() and "org.apache" not in job.failures()
    job.finishes_exactly()
    until_spark_is_gone(session.yarrow, session.id)


def test_a_killed_driver_takes_its_application_with_it_and_the_next_has_another(
    session: Application, output: Output
) -> None:
    job = BoundedJob(session, output, "sink")
    job.until_it_waits()
    former = job.spark
    (driver,) = session.drivers()
    output.forget_waiting()
    os.kill(driver, signal.SIGKILL)
    job.until_it_waits()
    assert living(session.yarrow.hadoop, session.id) == [job.spark] != [former]
    job.finishes_exactly()
    until_spark_is_gone(session.yarrow, session.id)


@pytest.mark.soak
def test_a_driver_that_is_killed_while_it_commits_is_followed_by_one_that_commits_without_executors(
    session: Application, output: Output
) -> None:
    # Too late to fail: a part of the output may be visible.
    job = BoundedJob(session, output, "commit", "-Drestart-strategy.type=none")
    job.until_it_waits()
    (driver,) = session.drivers()
    assert job.worker == driver and len(CommittedFiles(output.folder).rows()) < len(ROWS)
    output.forget_waiting()
    os.kill(driver, signal.SIGKILL)
    job.until_it_waits()
    until_spark_is_gone(session.yarrow, session.id)
    assert session.get(f"/jobs/{job.id}")["spark-master"] == "local[1]"
    job.finishes_exactly()
    session.until_driver_is_gone()


def test_a_cancelled_job_ends_its_application_and_commits_nothing(
    session: Application, output: Output
) -> None:
    job = BoundedJob(session, output, "sink")
    job.until_it_waits()
    session.yarrow.ok("cancel", "-yid", session.id, job.id)
    job.until("CANCELED")
    until_spark_is_gone(session.yarrow, session.id)
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []


@pytest.mark.soak
def test_a_functions_error_is_the_users_own_and_the_application_ends(session: Application) -> None:
    outcome = session.yarrow("run", "-yid", session.id, "broken_batch.py")
    assert outcome.status == 1
    assert "ZeroDivisionError" in outcome.err and "divide" in outcome.err
    assert "pyspark" not in outcome.err and "org.apache" not in outcome.err
    until_spark_is_gone(session.yarrow, session.id)


@pytest.mark.soak
def test_executors_without_room_are_waited_for_told_and_given_up(
    session: Application, output: Output
) -> None:
    # The queue has room for Spark's ApplicationMaster, and not for an executor.
    job = BoundedJob(
        session,
        output,
        "map",
        "-Dspark.yarn.queue=small",
        "-Dspark.yarn.am.memory=128m",
        "-Dslot.request.timeout=40s",
        "-Dexecution.batch.spark.start-timeout=30s",
        "-Drestart-strategy.type=none",
    )
    seen: set[str] = set()

    def is_told() -> bool:
        seen.add(session.get(f"/jobs/{job.id}")["waiting-for"])
        return any("room for Spark" in text for text in seen)

    session.yarrow.eventually(is_told, "the job says what it waits for")
    job.until("FAILED")
    assert "slot.request.timeout" in job.failures() and "Spark's application" in job.failures()
    until_spark_is_gone(session.yarrow, session.id)


@pytest.mark.soak
def test_a_killed_application_takes_spark_with_it_and_commits_nothing(
    alone: Commands, output: Output, hadoop: HadoopCluster, hadoop_environment: None
) -> None:
    arguments = ("sums_by_stage.py", *output.arguments, "sink")
    submitted = alone.ok("run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("killed"), *arguments)
    alone.eventually(lambda: output.is_waiting, "a task waits")
    hadoop.kill_application(submitted.application)
    until_spark_is_gone(alone, submitted.application)
    alone.eventually(lambda: not hadoop.container_processes(submitted.application), "nothing of it is left")
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []
    with YarnClusterDescriptor(Settings()) as next_one:
        remove_abandoned(next_one.client((b"", b"")))


@pytest.mark.soak
def test_a_master_that_takes_over_ends_the_former_application_and_begins_again(
    alone: Commands, output: Output, hadoop: HadoopCluster, hdfs_folder: str, hadoop_environment: None
) -> None:
    settings = high_availability(hadoop.zookeeper_quorum, ROOT, f"{hdfs_folder}/ha")
    flags = [f"-D{key}={value}" for key, value in settings.items()]
    arguments = ("sums_by_stage.py", *output.arguments, "sink")
    submitted = alone.ok("run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("again"), *flags, *arguments)
    application = Application(alone, submitted.application)
    alone.eventually(lambda: output.is_waiting, "a task waits")
    (former,) = living(hadoop, application.id)
    output.forget_waiting()
    (master,) = application.processes(MASTER)
    os.kill(master, signal.SIGKILL)
    alone.eventually(lambda: output.is_waiting, "a task of the next driver waits")
    assert former not in living(hadoop, application.id)
    output.open_gate()
    assert alone.final_status(application.id) == "SUCCEEDED"
    output.assert_exact()
    until_spark_is_gone(alone, application.id)
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        until(lambda: not client.exists(f"{ROOT}/{application.id}"), GRACE, "nothing is stored")
        client.delete(ROOT, recursive=True)
