"""Bounded jobs for tests on a real YARN: programs, the applications that run them, and what they write."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.standalone_spark import LEAN, LEAN_EXECUTORS
from tests.yarn.commands import Commands, commands_in
from tests.yarn.rest import ask, client_secrets
from yarrow.testing.transactional_files import CommittedFiles

SPARK_DRIVER = "yarrow.container.process.yarn_spark_driver"
MASTER = "yarrow.am.yarn.application_master"
ROWS = [(key, sum(n for n in range(1, 1001) if n % 7 == key)) for key in range(7)]
#: Sums by key into a folder; it waits for a file before the last row. A third argument names another mode than BATCH.
SUMS = """
import os, sys, time
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate = sys.argv[1:3]

def gated(number):
    if number == 1000:
        open(f"{gate}.reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.05)
    return (number % 7, number)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode[sys.argv[3] if sys.argv[3:] else "BATCH"])
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
#: A pipeline that leaves rows on HDFS, by its plain name in Hadoop's configuration.
STAGES = """
import sys
from yarrow.batch import Pipeline, StageTable

def numbers(spark):
    return spark.range(1, 1001).selectExpr("id % 7 as k", "id as v")

def doubled(spark, rows):
    return rows.selectExpr("k", "v * 2 as v")

pipeline = Pipeline("rows")
pipeline.stage("numbers", numbers, outputs=StageTable("rows", "k long, v long"))
pipeline.stage(
    "doubled", doubled, inputs=["rows"], outputs=StageTable("doubled", "k long, v long", f"hdfs://{sys.argv[1]}")
)
pipeline.execute()
"""
#: Sums of the columns that STAGES leaves.
COLUMNS = """
import sys
from yarrow.common import WatermarkStrategy
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSource
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.testing.transactional_files import TransactionalFiles

source = FileSource.for_bulk_file_format(ParquetColumnarRowInputFormat(), sys.argv[1]).build()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
rows = env.from_source(source, WatermarkStrategy.no_watermarks(), "rows")
sums = rows.key_by("k").aggregate([("v", "sum")]).to_rows(as_tuple=True)
sums.sink_to(TransactionalFiles(sys.argv[2]))
env.execute("columns")
"""
RESTARTING = {
    "heartbeat.interval": "1 s",
    # On a busy machine a process may stand for long: a silent one is no matter of these tests.
    "heartbeat.timeout": "60 s",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "3",
    "restart-strategy.fixed-delay.delay": "100 ms",
}
CONFIGURATION = {
    "spark.driver.memory": "512m",
    "yarn.spark-driver.memory": "1600m",
    **RESTARTING,
}
#: Tasks run in executors of an application of Spark's own.
CONFIGURATION_ON_YARN = {
    **CONFIGURATION,
    "spark.master": "yarn",
    "spark.executor.memory": "512m",
    "spark.yarn.am.memory": "512m",
    **LEAN_EXECUTORS,
    "spark.yarn.am.extraJavaOptions": LEAN,
    "slot.request.timeout": "10 min",
    # A machine under load is slow to answer, which is no matter of these tests.
    "spark.network.timeout": "300s",
    "spark.executor.heartbeatInterval": "5s",
}


def sparks(hadoop: HadoopCluster, owner: str) -> list[dict[str, Any]]:
    """Spark's applications of one of ours, whatever their state."""
    found = [one for one in hadoop.applications() if one["applicationType"] == "SPARK"]
    return [one for one in found if owner in str(one["applicationTags"]).split(",")]


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


@contextmanager
def bounded_session(
    hadoop: HadoopCluster, folder: Path, configuration: Mapping[str, str], name: str
) -> Iterator[Application]:
    """A session whose programs lie in the folder; it ends in order behind the block."""
    with commands_in(hadoop, folder, configuration) as yarrow:
        application = yarrow.ok("session", "-d", "-nm", yarrow.name(name)).application
        yield Application(yarrow, application)
        yarrow.ok("session", "-id", application, text="stop\n")
        assert yarrow.final_status(application) == "SUCCEEDED"


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
    (folder / "stages.py").write_text(STAGES)
    (folder / "columns.py").write_text(COLUMNS)
