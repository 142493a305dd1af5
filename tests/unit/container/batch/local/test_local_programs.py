"""Bounded programs in workers of a TaskExecutor, without Java: what the model, and what the stream gives.

All run in one embedded cluster of threads: the driver, the files between tasks and the BatchJobMaster are real.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.two_modes import NAMES, assert_equal, compared, main_of
from tests.unit.container.batch import test_random_programs
from tests.unit.container.batch.test_random_programs import Engine, Program, WithTime, engines, programs
from yarrow.common import Configuration
from yarrow.container.batch.batch_inputs import BatchInputs
from yarrow.container.batch.folding import combining_partition
from yarrow.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.ids import JobID, RandomIdFactory
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import BatchRunner


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(slots=3, processes=False) as made:
        yield made


def run(cluster: MiniCluster, graph: JobGraph) -> None:
    graph = msgspec.structs.replace(
        graph, job_id=JobID(RandomIdFactory().hex_id()), batch_runner=BatchRunner.LOCAL
    )
    cluster.submit(graph).get_job_execution_result().result()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_workers_give_what_the_stream_gives(cluster: MiniCluster, tmp_path: Path, name: str) -> None:
    with main_of(name, 2) as graph:
        found = compared(
            graph, tmp_path, lambda changed: run(cluster, changed), lambda changed: run(cluster, changed)
        )
    assert_equal(found)


def of_parallelism(parallelism: int) -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment(Configuration.from_dict({"parallelism.default": str(parallelism)}))


def rows_of(program: Program, engine: Engine) -> tuple[list[Any], list[Any]]:
    """The rows of a program that runs in workers, and what the model gives."""
    with pytest.MonkeyPatch.context() as patch:
        # Ids that count would repeat those of other programs.
        patch.setattr(test_random_programs, "environment", of_parallelism)
        env, streams = program.build(engine.parallelism)
    env.set_runtime_mode(RuntimeExecutionMode.AUTOMATIC)
    first, *rest = [each.stream for each in streams]
    united = (first.union(*rest) if rest else first).process(WithTime())
    with pytest.MonkeyPatch.context() as patch, united.execute_and_collect() as rows:
        for name in ("MOST_KEYS", "LEAST_KEYS", "FIRST_KEYS"):
            patch.setattr(combining_partition, name, engine.most_keys)
        patch.setattr(BatchInputs, "sort_bytes", engine.sort_bytes)
        found = list(rows)
    return found, [(row.row, row.time) for each in streams for row in each.rows]


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(programs(), engines())
def test_random_programs_give_what_the_model_gives(
    cluster: MiniCluster, program: Program, engine: Engine
) -> None:
    found, expected = rows_of(program, engine)
    assert Counter(found) == Counter(expected)
    again, _ = rows_of(program, engine)
    assert again == found
