"""Bounded jobs on a real YARN: the SparkDriver in a container of its own, which ends with its job however that ends.

Jobs of a session share it; a test whose fault ends the application has one of its own.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.commands import Commands, commands_in, end, read_until
from tests.yarn.highly_available import high_availability, zookeeper_client
from tests.yarn.rest import ask, client_secrets
from tests.yarn.waiting import GRACE, until
from yarrow.client.yarn.abandoned_files import remove_abandoned
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.testing.transactional_files import CommittedFiles

SPARK_DRIVER = "yarrow.container.process.yarn_spark_driver"
MASTER = "yarrow.am.yarn.application_master"
ROOT = f"/yarrow-batch-{os.getpid()}"
ROWS = [(key, sum(n for n in range(1, 1001) if n % 7 == key)) for key in range(7)]
#: Sums by key into a folder, printed as well; it waits for a file before the last row.
SUMS = """
import os, sys, time
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate = sys.argv[1:]

def gated(number):
    if number == 1000:
        open(f"{gate}.reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.05)
    return (number % 7, number)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
sums = env.from_sequence(1, 1000).map(gated).key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sums.sink_to(TransactionalFiles(folder))
env.execute("sums")
"""
BROKEN_BATCH = """
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
def divide(number):
    return 1 // number
env.from_collection([1, 0]).map(divide).print()
env.execute("broken")
"""
CONFIGURATION = {
    "spark.driver.memory": "512m",
    "yarn.spark-driver.memory": "1600m",
    "heartbeat.interval": "1 s",
    # On a busy machine a process may stand for long: a silent one is no matter of these tests.
    "heartbeat.timeout": "60 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "100 ms",
}


class Application:
    """An application and its bounded jobs."""

    def __init__(self, yarrow: Commands, application: str) -> None:
        self.yarrow = yarrow
        self.id = application

    def get(self, path: str) -> Any:
        secrets = client_secrets(self.yarrow.folder / "files", self.id)
        return ask(secrets.rest_address, secrets.rest_token, path)

    def status(self, job: str) -> str:
        return str(self.get(f"/jobs/{job}")["state"])

    def drivers(self) -> list[int]:
        """Process ids of SparkDrivers in containers."""
        return self.processes(SPARK_DRIVER)

    def processes(self, module: str) -> list[int]:
        found = self.yarrow.hadoop.container_processes(self.id)
        return [process.pid for process in found if process.command.endswith(f"-m {module}")]

    def until_driver_is_gone(self) -> None:
        """Nothing of a SparkDriver runs: no Python, no Java."""
        self.yarrow.eventually(lambda: self.drivers() == [] and self.java_of_spark() == [], "it is gone")

    def java_of_spark(self) -> list[int]:
        found = self.yarrow.hadoop.container_processes(self.id)
        return [process.pid for process in found if "org.apache.spark.deploy" in process.command]


class Output:
    """Where a job of SUMS writes, and the file that it waits for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder / "rows"
        self.gate = folder / "gate"

    @property
    def arguments(self) -> tuple[str, str]:
        return str(self.folder), str(self.gate)

    def open_gate(self) -> None:
        self.gate.touch()

    @property
    def is_waiting(self) -> bool:
        return Path(f"{self.gate}.reached").exists()

    def forget_waiting(self) -> None:
        Path(f"{self.gate}.reached").unlink()

    def assert_exact(self) -> None:
        committed = CommittedFiles(self.folder)
        assert sorted(committed.rows()) == ROWS
        assert committed.committed_twice() == []


def write_programs(folder: Path) -> None:
    (folder / "sums.py").write_text(SUMS)
    (folder / "broken_batch.py").write_text(BROKEN_BATCH)


@pytest.fixture(scope="module")
def session(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """A session for the tests whose faults it survives."""
    folder = tmp_path_factory.mktemp("session")
    write_programs(folder)
    with commands_in(hadoop, folder, CONFIGURATION) as yarrow:
        application = yarrow.ok("session", "-d", "-nm", yarrow.name("batch")).application
        yield Application(yarrow, application)
        yarrow.ok("session", "-id", application, text="stop\n")
        assert yarrow.final_status(application) == "SUCCEEDED"


@pytest.fixture
def alone(hadoop: HadoopCluster, hdfs_folder: str, tmp_path: Path) -> Iterator[Commands]:
    """Commands for applications of a test's own."""
    write_programs(tmp_path)
    with commands_in(hadoop, tmp_path, CONFIGURATION) as yarrow:
        yield yarrow


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "output")


def begun(session: Application, output: Output) -> str:
    """A job of SUMS whose tasks run, and wait; its id."""
    job = session.yarrow.ok("run", "-d", "-yid", session.id, "sums.py", *output.arguments).job
    session.yarrow.eventually(lambda: output.is_waiting, "its tasks run")
    return job


def test_a_job_runs_in_a_container_of_its_own_which_goes_with_it(
    session: Application, output: Output
) -> None:
    output.open_gate()
    done = session.yarrow.ok("run", "-yid", session.id, "sums.py", *output.arguments)
    assert "has finished" in done.out
    output.assert_exact()
    details = session.get(f"/jobs/{done.job}")
    assert details["job-type"] == "BATCH" and details["spark-application"].startswith("local-")
    session.until_driver_is_gone()
    logs = session.yarrow.hadoop.container_logs(session.id)
    assert any(name.endswith("sparkdriver.log") for name in logs)
    assert any(name.endswith("sparkdriver-spark.log") for name in logs)


def test_a_functions_error_is_the_users_own_and_the_driver_ends(session: Application) -> None:
    outcome = session.yarrow("run", "-yid", session.id, "broken_batch.py")
    assert outcome.status == 1
    assert "ZeroDivisionError" in outcome.err and "divide" in outcome.err
    assert "pyspark" not in outcome.err and "org.apache" not in outcome.err
    session.until_driver_is_gone()


def test_a_killed_driver_is_replaced(session: Application, output: Output) -> None:
    job = begun(session, output)
    (first,) = session.drivers()
    output.forget_waiting()
    os.kill(first, signal.SIGKILL)
    session.yarrow.eventually(lambda: output.is_waiting, "the next driver runs it from its beginning")
    assert first not in session.drivers()
    (failure, *_) = session.get(f"/jobs/{job}/exceptions")["exceptionHistory"]["entries"]
    assert "SparkDriver" in failure["stacktrace"]
    output.open_gate()
    session.yarrow.eventually(lambda: session.status(job) == "FINISHED", "it finishes")
    output.assert_exact()
    session.until_driver_is_gone()


def test_a_cancelled_job_ends_its_driver(session: Application, output: Output) -> None:
    job = begun(session, output)
    session.yarrow.ok("cancel", "-yid", session.id, job)
    session.yarrow.eventually(lambda: session.status(job) == "CANCELED", "it is cancelled")
    session.until_driver_is_gone()
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []


def test_a_job_that_asks_for_more_than_the_container_has_is_refused_by_name(
    session: Application, output: Output
) -> None:
    outcome = session.yarrow(
        "run", "-yid", session.id, "-Dspark.driver.memory=4g", "sums.py", *output.arguments
    )
    assert outcome.status == 1
    assert "spark.driver.memory of 4 gb" in outcome.err and "yarn.spark-driver.memory" in outcome.err


def test_a_queue_without_room_is_waited_for_and_told(alone: Commands, output: Output) -> None:
    # The queue has 10 % of the cluster: room for the master and no more.
    started = alone.ok("session", "-d", "-nm", alone.name("waits"), "-qu", "small")
    application = Application(alone, started.application)
    job = alone.ok(
        "run", "-d", "-yid", application.id, "-Dslot.request.timeout=1h", "sums.py", *output.arguments
    ).job
    alone.eventually(
        lambda: "has not granted" in application.get(f"/jobs/{job}")["waiting-for"], "a reason is given"
    )
    assert "YARN has not granted 1 containers of 1600 MB" in application.get(f"/jobs/{job}")["waiting-for"]
    alone.ok("cancel", "-yid", application.id, job)
    alone.eventually(lambda: application.status(job) == "CANCELED", "it is cancelled")
    alone.ok("session", "-id", application.id, text="stop\n")
    assert alone.final_status(application.id) == "SUCCEEDED"


def test_a_killed_application_takes_its_driver_with_it(
    alone: Commands, output: Output, hadoop: HadoopCluster, hadoop_environment: None
) -> None:
    submitted = alone.ok(
        "run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("killed"), "sums.py", *output.arguments
    )
    application = Application(alone, submitted.application)
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    hadoop.kill_application(application.id)
    alone.eventually(lambda: not hadoop.container_processes(application.id), "nothing of it is left")
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []
    with YarnClusterDescriptor(Settings()) as next_one:
        remove_abandoned(next_one.client((b"", b"")))


def test_a_killed_client_ends_its_job_with_the_driver(
    alone: Commands, output: Output, hadoop: HadoopCluster
) -> None:
    attached = alone.begin(
        "run",
        "-t",
        "yarn-per-job",
        "-ynm",
        alone.name("client"),
        "-Dexecution.shutdown-on-attached-exit=true",
        "-Dclient.heartbeat.interval=500ms",
        "-Dclient.heartbeat.timeout=20s",
        "sums.py",
        *output.arguments,
    )
    read_until(attached, "has been submitted")
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    (entry,) = [one for one in hadoop.applications(("RUNNING",)) if one["name"] == alone.name("client")]
    end(attached, signal.SIGKILL)
    alone.final_status(entry["id"])
    alone.eventually(lambda: not hadoop.container_processes(entry["id"]), "nothing of it is left")
    assert not output.folder.exists() or CommittedFiles(output.folder).rows() == []


def test_a_master_that_takes_over_begins_the_job_again(
    alone: Commands, output: Output, hadoop: HadoopCluster, hdfs_folder: str, hadoop_environment: None
) -> None:
    settings = high_availability(hadoop.zookeeper_quorum, ROOT, f"{hdfs_folder}/ha")
    flags = [f"-D{key}={value}" for key, value in settings.items()]
    submitted = alone.ok(
        "run", "-d", "-t", "yarn-per-job", "-ynm", alone.name("again"), *flags, "sums.py", *output.arguments
    )
    application = Application(alone, submitted.application)
    alone.eventually(lambda: output.is_waiting, "its tasks run")
    (driver,) = application.drivers()
    output.forget_waiting()
    (master,) = application.processes(MASTER)
    os.kill(master, signal.SIGKILL)
    alone.eventually(lambda: output.is_waiting, "the next master's driver runs it")
    assert driver not in application.drivers()
    output.open_gate()
    assert alone.final_status(application.id) == "SUCCEEDED"
    output.assert_exact()
    alone.eventually(lambda: not hadoop.container_processes(application.id), "nothing of it is left")
    with zookeeper_client(hadoop.zookeeper_quorum) as client:
        until(lambda: not client.exists(f"{ROOT}/{application.id}"), GRACE, "nothing is stored")
        client.delete(ROOT, recursive=True)
