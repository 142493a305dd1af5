"""A bounded job whose sink is on HDFS while the NameNode is in safe mode: it is exact once that is over."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.batch.bounded_jobs import CONFIGURATION, ROWS, Application, Output
from tests.yarn.commands import Commands, commands_in
from tests.yarn.faults.test_storage import set_safe_mode

pytestmark = pytest.mark.soak

#: Sums by key to HDFS. The task that writes waits for a file before the last row.
SUMS_TO_HDFS = """
import os, sys, time
from yarrow.common import Encoder, Types
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink

folder, gate = sys.argv[1:]

def between(row):
    if row[0] == 6:
        open(f"{gate}.reached", "w").close()
        while not os.path.exists(gate):
            time.sleep(0.05)
    return str(row)

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
env.set_runtime_mode(RuntimeExecutionMode.BATCH)
rows = env.from_sequence(1, 1000).map(lambda number: (number % 7, number))
sums = rows.key_by(lambda row: row[0]).reduce(lambda a, b: (a[0], a[1] + b[1]))
sink = FileSink.for_row_format(folder, Encoder.simple_string_encoder()).build()
sums.map(between, Types.STRING()).sink_to(sink)
env.execute("sums to HDFS")
"""


class JobOnHdfs:
    """A job of SUMS_TO_HDFS in an application of its own, whose task waits."""

    def __init__(self, yarrow: Commands, output: Output, folder: str, *flags: str) -> None:
        self.yarrow, self.output, self.path = yarrow, output, f"{urlsplit(folder).path}/rows"
        arguments = ("sums_to_hdfs.py", f"{folder}/rows", output.arguments[1])
        name = yarrow.name("safe-mode")
        submitted = yarrow.ok("run", "-d", "-t", "yarn-per-job", "-ynm", name, *flags, *arguments)
        self.application, self.id = Application(yarrow, submitted.application), submitted.job
        yarrow.eventually(lambda: output.is_waiting, "a task waits")

    def failures(self) -> str:
        return json.dumps(self.application.get(f"/jobs/{self.id}/exceptions"))

    def files(self) -> list[str]:
        """All files below the sink's folder."""
        listed = self.yarrow.hadoop.run("hdfs", "dfs", "-ls", "-R", self.path).stdout.splitlines()
        return [line.split()[-1] for line in listed if line.startswith("-")]

    def rows(self) -> list[str]:
        """What is committed; nothing else lies there."""
        files = self.files()
        assert not [file for file in files if "/." in file], files
        return sorted(self.yarrow.hadoop.run("hdfs", "dfs", "-cat", *files).stdout.splitlines())


@pytest.fixture
def yarrow(hadoop: HadoopCluster, tmp_path: Path) -> Iterator[Commands]:
    (tmp_path / "sums_to_hdfs.py").write_text(SUMS_TO_HDFS)
    settings = {
        **CONFIGURATION,
        "restart-strategy.fixed-delay.attempts": "1000",
        "restart-strategy.fixed-delay.delay": "1 s",
        "fs.webhdfs.retry-timeout": "1 s",
    }
    with commands_in(hadoop, tmp_path, settings) as commands:
        yield commands


def test_a_sink_in_safe_mode_costs_restarts_until_it_is_over(
    hadoop: HadoopCluster, yarrow: Commands, hdfs_folder: str, output: Output
) -> None:
    job = JobOnHdfs(yarrow, output, hdfs_folder)
    set_safe_mode(hadoop, True)
    try:
        output.open_gate()
        yarrow.eventually(lambda: "in safe mode" in job.failures(), "a run fails, and says why")
        assert job.application.status(job.id) in ("RUNNING", "RESTARTING")
    finally:
        set_safe_mode(hadoop, False)
    assert yarrow.final_status(job.application.id) == "SUCCEEDED"
    assert job.rows() == sorted(str(row) for row in ROWS)
    yarrow.eventually(lambda: not hadoop.container_processes(job.application.id), "nothing of it is left")
