"""The programs of tests/spark/programs: BatchTasks give what a stream gives, whatever the order and the parallelism.

The stream runs in an embedded cluster of threads, which all examples share. Both are compared as `yarrow verify` does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.batch_runner import run_batch, shuffled
from tests.support.two_modes import NAMES, assert_equal, compared, main_of
from yarrow.container.batch.commits import commit, sinks_of
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph

#: Records of programs whose second argument is their number.
RECORDS = "5000"


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(slots=3, processes=False) as made:
        yield made


def run_stream(cluster: MiniCluster, graph: JobGraph) -> None:
    graph = msgspec.structs.replace(graph, job_id=JobID(RandomIdFactory().hex_id()))
    cluster.submit(graph).get_job_execution_result().result()


def run_bounded(graph: JobGraph, seed: int) -> None:
    """BatchTasks in this thread; chunks come in any order. Then their committables are committed."""
    run = run_batch(graph, {"execution.batch.max-rows": "100"}, deal=shuffled(seed), clock=SystemClock())
    for sink in sinks_of(graph):
        operator = graph.vertex(sink.vertex_id).operators[sink.operator].id
        commit(graph, sink, run.committables[operator], Settings(), SystemClock())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_both_modes_are_equal(
    cluster: MiniCluster, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    @settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(seed=st.integers(0, 1000), parallelism=st.integers(1, 3))
    def run(seed: int, parallelism: int) -> None:
        folder: Path = tmp_path_factory.mktemp("modes")
        with main_of(name, parallelism, [str(seed), RECORDS]) as graph:
            assert_equal(
                compared(
                    graph,
                    folder,
                    lambda changed: run_stream(cluster, changed),
                    lambda changed: run_bounded(changed, seed),
                )
            )

    run()
