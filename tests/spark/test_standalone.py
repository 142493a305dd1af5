"""Bounded jobs on a standalone cluster: in a slot beside a stream, and under a killed TaskExecutor or master."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from tests.spark.test_driver_process import left_of, until
from tests.support.free_ports import free_port
from tests.support.process_names import name_of
from tests.support.spark_driver import LIMIT

pytestmark = pytest.mark.spark
#: Starts of a cluster, each with other ports.
TRIES = 5

#: It has a row now and then, and leaves the cores to Spark.
_STREAM = """
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.datagen import DataGeneratorSource, RateLimiterStrategy
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
source = DataGeneratorSource(lambda value: value, 10**15, RateLimiterStrategy.per_second(20))
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").filter(lambda value: False).print()
env.execute("stream")
"""
_SUMS = """
from yarrow.datastream import StreamExecutionEnvironment
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
rows = env.from_sequence(1, 999).map(lambda value: (value % 3, value))
sums = rows.key_by(lambda row: row[0]).reduce(lambda one, other: (one[0], one[1] + other[1]))
sums.map(lambda row: f"sum {row[0]} is {row[1]}").print()
print(sorted(sums.execute_and_collect("sums")))
"""
#: Its tasks tell that they run, and in which processes, and then wait for ever.
_WAITING = """
import os, sys, threading
from pathlib import Path
from yarrow.datastream import StreamExecutionEnvironment
marker = sys.argv[1]
def wait(value):
    Path(f"{marker}.{os.getpid()}").touch()
    Path(marker).touch()
    threading.Event().wait()
env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.from_sequence(1, 4).rebalance().map(wait).print()
env.execute("waiting")
"""
#: An iteration that would take days.
_LOOP = """
import sys
from yarrow.batch.dataset import ExecutionEnvironment
env = ExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
loop = env.generate_sequence(1, 10).iterate(1_000_000).name("loop")
loop.close_with(loop.map(lambda number: number + 1)).write_as_text(sys.argv[1])
env.execute("loop")
"""


@dataclass(frozen=True)
class Standalone:
    """A cluster of two TaskExecutors with two slots each."""

    folder: Path
    rest: int

    def __call__(self, *arguments: str) -> str:
        """What `yarrow` prints."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Runs `yarrow` to its end, whatever its status is."""
        return subprocess.run(
            [sys.executable, "-m", "yarrow.cli.main", *arguments],
            capture_output=True,
            text=True,
            cwd=self.folder,
            env={**os.environ, "YARROW_CONF_DIR": str(self.folder / "conf")},
            timeout=LIMIT,
        )

    def submit(self, *arguments: str) -> str:
        """Runs a program detached; the id of its job."""
        [job_id] = re.findall(r"submitted with JobID ([0-9a-f]{32})", self("run", "-d", *arguments))
        return str(job_id)

    def get(self, path: str) -> Any:
        """The body of a REST answer."""
        with urlopen(f"http://localhost:{self.rest}{path}", timeout=LIMIT) as answer:
            body = answer.read()
        return json.loads(body) if answer.headers["Content-Type"].startswith("application/json") else body

    def patch(self, path: str) -> None:
        """Sends a PATCH without a body."""
        request = Request(f"http://localhost:{self.rest}{path}", method="PATCH")
        with urlopen(request, timeout=LIMIT) as answer:
            assert answer.status == 202

    def files(self) -> set[Path]:
        """What lies in the folders of its processes, which make and remove more meanwhile."""
        return {
            Path(folder, name)
            for folder, folders, files in os.walk(self.folder / "tmp")
            for name in (*folders, *files)
        }

    def run_sums_beside(self, stream: str, mode: str) -> Any:
        """Runs SUMS beside a stream of one slot, and checks what both do; REST's details of the job."""
        until(lambda: self.free() == 3)
        assert "[(0, 166833), (1, 166167), (2, 166500)]" in self(
            "run", "-m", f"localhost:{self.rest}", f"-Dexecution.runtime-mode={mode}", "sums.py"
        )
        assert f": {stream} : stream (RUNNING)" in self("list", "-r")
        until(lambda: self.free() == 3)
        printed = self.get("/jobmanager/stdout").decode().splitlines()
        assert sorted(line.partition("> ")[2] for line in printed) == [
            "sum 0 is 166833",
            "sum 1 is 166167",
            "sum 2 is 166500",
        ]
        [job] = [job for job in self.get("/jobs/overview")["jobs"] if job["name"] == "sums"]
        return self.get(f"/jobs/{job['jid']}")

    def free(self) -> int:
        return int(self.get("/overview")["slots-available"])

    def job_manager(self) -> psutil.Process:
        """The process of the master."""
        [daemons] = self.folder.glob("pids/*/daemons.json")
        [pid] = [one["pid"] for one in json.loads(daemons.read_text()) if one["role"] == "standalonesession"]
        return psutil.Process(pid)

    def processes(self, name: str) -> list[psutil.Process]:
        """Those of this cluster that bear the name."""
        return [process for process in psutil.process_iter() if self._has(process, name)]

    def _has(self, process: psutil.Process, name: str) -> bool:
        try:
            conf = process.environ().get("YARROW_CONF_DIR")
            return bool(conf == str(self.folder / "conf") and process.name() == name)
        except psutil.Error:
            return False


@pytest.fixture(scope="module")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standalone]:
    folder = tmp_path_factory.mktemp("standalone")
    (folder / "conf").mkdir()
    (folder / "conf" / "workers").write_text("localhost\nlocalhost\n")
    for name, text in (
        ("stream.py", _STREAM),
        ("sums.py", _SUMS),
        ("waiting.py", _WAITING),
        ("loop.py", _LOOP),
    ):
        (folder / name).write_text(text)
    cluster = started_in(folder)
    try:
        yield cluster
    finally:
        cluster("stop-cluster")


def started_in(folder: Path) -> Standalone:
    """A running cluster. Another process may take a port that was free: then it tries others."""
    (folder / "tmp").mkdir(exist_ok=True)
    for _ in range(TRIES):
        cluster = Standalone(folder, free_port())
        write_configuration(cluster)
        started = cluster.run("start-cluster")
        if started.returncode == 0:
            return cluster
    raise AssertionError(started.stderr)


def write_configuration(cluster: Standalone) -> None:
    folder = cluster.folder
    (folder / "conf" / "config.yaml").write_text(
        f"env.pid.dir: {folder / 'pids'}\n"
        f"io.tmp.dirs: {folder / 'tmp'}\n"
        f"jobmanager.rpc.port: {free_port()}\n"
        f"rest.port: {cluster.rest}\n"
        "jobmanager.bind-host: localhost\n"
        "taskmanager.bind-host: localhost\n"
        "taskmanager.numberOfTaskSlots: 2\n"
        "heartbeat.interval: 2 s\n"
        "heartbeat.timeout: 40 s\n"
    )


def test_a_bounded_job_runs_in_a_slot_beside_a_stream(standalone: Standalone) -> None:
    stream = standalone.submit("stream.py")
    details = standalone.run_sums_beside(stream, "BATCH")
    assert (details["state"], details["spark-master"]) == ("FINISHED", "local[2]")
    assert details["spark-application"].startswith("local-")
    logs = standalone.get(f"/taskmanagers/{details['spark-driver-taskmanager']}/logs")["logs"]
    [name] = [log["name"] for log in logs if log["name"].endswith(f"{details['spark-driver']}.log")]
    text = standalone.get(f"/taskmanagers/{details['spark-driver-taskmanager']}/logs/{name}")
    assert b"run 0 of job" in text
    standalone("cancel", stream)
    until(lambda: standalone.free() == 4)


def test_an_iteration_that_rest_cancels_leaves_nothing(standalone: Standalone) -> None:
    until(lambda: standalone.free() == 4)
    before = standalone.files()
    out = standalone.folder / "loop"
    job_id = standalone.submit("loop.py", str(out))
    path = f"/jobs/{job_id}"

    def supersteps() -> int:
        details = standalone.get(path)
        assert details["state"] in ("CREATED", "RUNNING"), standalone.get(f"{path}/exceptions")
        return max((each["superstep"] for each in details["iterations"]), default=0)

    until(lambda: supersteps() > 2)
    [driver] = standalone.processes("yarrow-sparkdrv")
    processes = [driver, *driver.children(recursive=True)]
    assert {"java", "yarrow-batchd", "yarrow-batch"} <= {name_of(process) for process in processes}
    # What a former job has left may go meanwhile.
    assert standalone.files() - before
    standalone.patch(f"{path}?mode=cancel")
    until(lambda: standalone.get(path)["state"] == "CANCELED")
    assert left_of(processes) == []
    until(lambda: standalone.free() == 4)
    until(lambda: standalone.files() <= before)
    assert not out.exists() or not list(out.iterdir())


def test_nothing_outlives_a_killed_task_executor_or_master(standalone: Standalone) -> None:
    marker = standalone.folder / "marker"
    job_id = standalone.submit(
        "-Dexecution.runtime-mode=BATCH",
        "-Drestart-strategy.type=fixed-delay",
        "-Drestart-strategy.fixed-delay.attempts=3",
        "-Drestart-strategy.fixed-delay.delay=100 ms",
        "waiting.py",
        str(marker),
    )
    until(marker.exists)
    first = standalone.get(f"/jobs/{job_id}")
    host = first["spark-driver-taskmanager"]
    [driver] = standalone.processes("yarrow-sparkdrv")
    processes = [driver, *driver.children(recursive=True)]
    assert {"java", "yarrow-batchd", "yarrow-batch"} <= {name_of(process) for process in processes}
    # The TaskExecutor that hosts the driver.
    driver.parent().kill()
    assert left_of(processes) == []
    # The other TaskExecutor hosts the next driver.
    until(lambda: standalone.get(f"/jobs/{job_id}")["spark-driver-taskmanager"] not in ("", host))
    until(lambda: len(standalone.processes("yarrow-sparkdrv")) == 1)
    [driver] = standalone.processes("yarrow-sparkdrv")
    failures = standalone.get(f"/jobs/{job_id}/exceptions")["exceptionHistory"]["entries"]
    assert any(first["spark-driver"] in failure["stacktrace"] for failure in failures)
    until(lambda: "java" in map(name_of, driver.children(recursive=True)))
    processes = [driver, *driver.children(recursive=True)]
    standalone.job_manager().kill()
    assert left_of(processes) == []
