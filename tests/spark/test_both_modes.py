"""The programs of tests/spark/programs as streams and on Spark: what reaches each sink is equal.

All share one SparkDriver and one embedded cluster. tests/unit/container/batch/test_programs_in_both_modes.py varies
their order and parallelism without Spark.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.support.spark_driver import DriverUnderTest
from tests.support.two_modes import NAMES, PROGRAMS, assert_equal, compared, main_of
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.graph.job_graph import JobGraph

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(slots=2) as made:
        yield made


def run_stream(cluster: MiniCluster, graph: JobGraph) -> None:
    graph = msgspec.structs.replace(graph, job_id=JobID(RandomIdFactory().hex_id()))
    cluster.submit(graph).get_job_execution_result().result()


def run_on_spark(driver: DriverUnderTest, graph: JobGraph) -> None:
    outcome = driver.run(graph)
    assert outcome.failure is None, outcome.failure.stacktrace
    assert outcome.finished is not None


@pytest.mark.parametrize("name", NAMES)
def test_spark_gives_what_the_stream_gives(
    driver: DriverUnderTest, cluster: MiniCluster, tmp_path: Path, name: str
) -> None:
    with main_of(name, 2) as graph:
        found = compared(
            graph,
            tmp_path,
            lambda changed: run_stream(cluster, changed),
            lambda changed: run_on_spark(driver, changed),
        )
    assert_equal(found)


def test_word_count_reads_and_writes_files(driver: DriverUnderTest, tmp_path: Path) -> None:
    """The files of the program itself, not what enters its sink."""
    text = "\n".join(path.read_text() for path in sorted(PROGRAMS.glob("*.py")))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "text.txt").write_text(text)
    counted: dict[str, int] = {}
    for word in text.split():
        counted[word] = counted.get(word, 0) + 1
    with main_of(
        "word_count", 2, ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    ) as graph:
        run_on_spark(driver, graph)
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files and all(path.name.startswith("words-") and path.suffix == ".txt" for path in files)
    lines = sorted(line for path in files for line in path.read_text().splitlines())
    assert lines == sorted(f"{word} {times}" for word, times in counted.items())
