"""Executors on YARN that are slow, come late, are idle, or have a full disk.

Speculative copies and dynamic allocation are those of Spark, by options of the job. Each job's output is exact, or it
has failed with its cause and has committed nothing; nothing is left on YARN and on the disks of its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import NODE_MANAGERS, user
from tests.support.small_disk import small_disk
from tests.support.speculation import SPECULATION
from tests.yarn.batch.bounded_jobs import CONFIGURATION_ON_YARN, Application, Output, bounded_session
from tests.yarn.batch.test_spark_executors import BoundedJob, executors_of, until_spark_is_gone
from yarrow.testing.transactional_files import CommittedFiles

NUMBERS = 9000
#: Numbers with subtask and attempt. The first attempt of subtask 1 waits in the midst of its rows, for good.
SLOW_AT_FIRST = """
import os, sys, time
from yarrow.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate, numbers = sys.argv[1:]

class SlowAtFirst(MapFunction):
    def open(self, context):
        self.place = (context.get_index_of_this_subtask(), context.get_attempt_number())
        self.left = int(numbers) // 4 if self.place == (1, 0) else -1
    def map(self, number):
        if self.left == 0:
            with open(f"{gate}.part", "w") as process:
                process.write(str(os.getpid()))
            os.replace(f"{gate}.part", f"{gate}.reached")
            while True:
                time.sleep(0.05)
        self.left -= 1
        return (*self.place, number)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
numbers_in = env.from_sequence(1, int(numbers))
numbers_in.rebalance().map(SlowAtFirst()).sink_to(TransactionalFiles(folder))
env.execute("slow at first")
"""
#: Three tasks that wait for each other, then three of which the last one waits for a file. Both sinks have all rows.
TOGETHER = """
import os, sys, time
from yarrow.datastream import MapFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate, numbers = sys.argv[1:]

class Waiting(MapFunction):
    def open(self, context):
        self.subtask = context.get_index_of_this_subtask()
        self.waits = True
    def map(self, number):
        if self.waits:
            self.waits = False
            self.wait()
        return number

class Together(Waiting):
    def wait(self):
        open(f"{gate}.begun.{self.subtask}", "w").close()
        while not all(os.path.exists(f"{gate}.begun.{other}") for other in range(3)):
            time.sleep(0.05)

class LastOne(Waiting):
    def wait(self):
        if self.subtask == 2:
            open(f"{gate}.reached", "w").close()
            while not os.path.exists(gate):
                time.sleep(0.05)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(3)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
rows = env.from_sequence(1, int(numbers)).map(Together()).rebalance().map(LastOne())
rows.sink_to(TransactionalFiles(f"{folder}/before"))
rows.rebalance().map(lambda number: number).sink_to(TransactionalFiles(f"{folder}/behind"))
env.execute("together")
"""
#: Rows that do not fit on a small disk: Java's, which cannot compress them, or those that a task sorts.
LARGE_ROWS = """
import os, sys
from yarrow.datastream import KeyedProcessFunction, RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.testing.transactional_files import TransactionalFiles

folder, gate, rows = sys.argv[1:]
text = {"shuffled": lambda: os.urandom(2048), "sorted": lambda: bytes(2048)}[rows]

class Lengths(KeyedProcessFunction):
    def process_element(self, row, context):
        yield (row[0], len(row[1]))

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
texts = env.from_sequence(1, 30_000).map(lambda number: (number % 7, text()))
texts.map(lambda row: row[0]).sink_to(TransactionalFiles(f"{folder}/before"))
texts.key_by(lambda row: row[0]).process(Lengths()).sink_to(TransactionalFiles(f"{folder}/behind"))
env.execute("large rows")
"""
ON_TWO_NODES = {
    **SPECULATION,
    # Spark puts no copy on the host of the first attempt. Two of these have no room on one node.
    "spark.executor.memoryOverhead": "2944m",
}
#: Idle executors hand rows that Spark has shuffled to the others, and go.
ALLOCATION = {
    "spark.dynamicAllocation.enabled": "true",
    "spark.dynamicAllocation.shuffleTracking.enabled": "false",
    "spark.dynamicAllocation.executorIdleTimeout": "2s",
    "spark.decommission.enabled": "true",
    "spark.storage.decommission.enabled": "true",
    "spark.storage.decommission.shuffleBlocks.enabled": "true",
    "spark.storage.decommission.replicationReattemptInterval": "1s",
}
NO_RESTART = {"restart-strategy.type": "none"}
#: An executor runs one task after the other. A restart would only do so again.
ONE_EXECUTOR = {"spark.executor.instances": "1", **NO_RESTART}
MEGABYTES = 24
REMEDY = "let YARN's NodeManagers write to a larger one (yarn.nodemanager.local-dirs)"
#: Bytes in which YARN can start Spark's ApplicationMaster, and an executor beside it at most.
ROOM_TO_START = 64 << 10


def flags(options: dict[str, str]) -> list[str]:
    return [f"-D{key}={value}" for key, value in options.items()]


@pytest.fixture(scope="module")
def session(hadoop: HadoopCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Application]:
    """A session for all tests: their faults are those of Spark's applications."""
    folder = tmp_path_factory.mktemp("session")
    for name, program in (("slow", SLOW_AT_FIRST), ("together", TOGETHER), ("large", LARGE_ROWS)):
        (folder / f"{name}.py").write_text(program)
    with bounded_session(hadoop, folder, CONFIGURATION_ON_YARN, "slow-idle-full") as started:
        yield started


@pytest.mark.soak
def test_a_speculative_copy_overtakes_a_task_whose_files_are_aborted(
    session: Application, output: Output
) -> None:
    job = BoundedJob(session, output, str(NUMBERS), *flags(ON_TWO_NODES), program="slow.py")
    job.until_it_waits()
    slow = job.worker
    job.until("FINISHED")
    committed = CommittedFiles(output.folder)
    rows = committed.rows()
    assert sorted(number for _, _, number in rows) == list(range(1, NUMBERS + 1))
    # Spark may copy the other task, too.
    assert {attempt for subtask, attempt, _ in rows if subtask == 1} == {1}, (
        "the first attempt waits for good"
    )
    assert committed.committed_twice() == [] and committed.leftovers() == []
    until_spark_is_gone(session.yarrow, session.id)
    assert not psutil.pid_exists(slow)


@pytest.mark.soak
def test_executors_come_with_tasks_and_go_when_idle_and_nothing_is_lost(
    session: Application, output: Output, hadoop: HadoopCluster
) -> None:
    job = BoundedJob(session, output, str(NUMBERS), *flags(ALLOCATION), program="together.py")
    # The first three tasks wait for each other, in executors of one core: it has three at a time.
    job.until_it_waits()
    session.yarrow.eventually(lambda: executors_of(hadoop, job.spark) == 1, "two are idle, and go")
    output.open_gate()
    job.until("FINISHED")
    for sink in ("before", "behind"):
        committed = CommittedFiles(output.folder / sink)
        assert sorted(committed.rows()) == list(range(1, NUMBERS + 1)), sink
        assert committed.committed_twice() == [] and committed.leftovers() == [], sink
    assert job.failures() == ""
    until_spark_is_gone(session.yarrow, session.id)


@contextmanager
def small_disks_of_next_application(hadoop: HadoopCluster, megabytes: int) -> Iterator[list[Path]]:
    """On each node, the folder of the application that comes next lies on a small disk of its own."""
    names = [str(one["id"]).rpartition("_") for one in hadoop.applications()]
    name = f"{names[0][0]}_{1 + max(int(number) for _, _, number in names):04}"
    with ExitStack() as mounted:
        folders = []
        for node in NODE_MANAGERS:
            own = hadoop.local_dir(node) / "usercache" / user() / "appcache"
            own.mkdir(parents=True, exist_ok=True)
            # The node cannot remove a folder on which a disk is mounted.
            mounted.callback((own / name).rmdir)
            folders.append(mounted.enter_context(small_disk(own / name, megabytes)))
        yield folders


@pytest.mark.parametrize(
    ("rows", "who"),
    [
        pytest.param(
            "shuffled",
            "Java, which runs Spark, cannot write its files: the disk of executor ",
            id="shuffled",
        ),
        pytest.param(
            "sorted",
            "rows that do not fit into memory cannot be written to ",
            marks=pytest.mark.soak,
            id="sorted",
        ),
    ],
)
def test_an_executor_that_fills_its_disk_names_it_and_nothing_is_committed(
    session: Application, output: Output, hadoop: HadoopCluster, rows: str, who: str
) -> None:
    options = {**ONE_EXECUTOR, "execution.batch.sort-memory": "1m" if rows == "sorted" else "1g"}
    with small_disks_of_next_application(hadoop, MEGABYTES) as disks:
        job = BoundedJob(session, output, rows, *flags(options), program="large.py")
        job.until("FAILED")
        assert disks[0].name == job.spark
        first = job.failures().splitlines()[0]
        assert who in first and "org.apache" not in job.failures() and "py4j" not in job.failures()
        (full,) = (disk for disk in disks if f"mounted on {disk}, {MEGABYTES} MB" in first)
        assert f" {full}/" in first, "the folder"
        assert REMEDY in first
        assert_nothing_is_left(session, output, disks)


@pytest.mark.soak
def test_executors_that_have_no_room_to_start_fail_the_job_with_that_cause(
    session: Application, output: Output, hadoop: HadoopCluster
) -> None:
    with small_disks_of_next_application(hadoop, 1) as disks:
        for disk in disks:
            (disk / "filler").write_bytes(bytes((1 << 20) - ROOM_TO_START))
        job = BoundedJob(session, output, "shuffled", *flags(NO_RESTART), program="large.py")
        job.until("FAILED")
        first = job.failures().splitlines()[0]
        # One executor may have room to start, and none to write.
        assert "No space left on device" in first or "the disk of executor " in first
        assert REMEDY in first
        assert_nothing_is_left(session, output, disks)


def assert_nothing_is_left(session: Application, output: Output, disks: list[Path]) -> None:
    """No row is committed, and no file of a sink, of Spark and of its containers is there."""
    assert [path for path in output.folder.rglob("*") if path.is_file()] == []
    until_spark_is_gone(session.yarrow, session.id)
    session.yarrow.eventually(
        lambda: not any(path for disk in disks for path in disk.iterdir()), "the disks are empty again"
    )
