"""A run that repeats a lost one: rows and text come once, also from a source that is polled otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.cluster.control.control_cluster import control_cluster, eventually
from tests.support.batch_runner import collecting_graph
from tests.support.fake_spark_driver import FakeSparkDriver
from tests.unit.runtime.graph.programs import environment
from tests.unit.runtime.rpc.loops import run
from yarrow.am.jobmaster.scheduling.restart_strategies import FixedDelayBackoff, FixedDelaySettings
from yarrow.am.jobmaster.scheduling.settings import JobMasterSettings
from yarrow.client.collected_rows import CollectedResults
from yarrow.common import WatermarkStrategy
from yarrow.common.job_status import JobStatus
from yarrow.container.batch.batch_task import BatchAttempt, BatchTask
from yarrow.container.batch.driver.run_results import RunResults
from yarrow.container.batch.driver.task_messages import ResultChunk
from yarrow.container.batch.split_assignment import assign
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType
from yarrow.runtime.security.result_proof import ResultProof

KEY = b"key of the results"
ROWS = 5000
RESTARTING = JobMasterSettings(restart_backoff=lambda: FixedDelayBackoff(FixedDelaySettings(5, 1.0)))


def printing_and_collecting() -> JobGraph:
    """One vertex: a source, two printing operators, and a collecting one; some rows are longer than a message."""
    env = environment(1)
    strategy: Any = WatermarkStrategy.no_watermarks()
    numbers = env.from_source(NumberSequenceSource(1, ROWS), strategy, "numbers")
    texts = numbers.map(lambda n: str(n) + "," * (3_000_000 if n in (700, 4000) else 0))
    numbers.print("one")
    numbers.map(lambda n: -n).print("two")
    graph = collecting_graph(env, texts)
    assert len(graph.vertices) == 1
    return msgspec.structs.replace(graph, job_type=JobType.BATCH)


def chunks(graph: JobGraph, poll: int, folder: Path) -> Iterator[ResultChunk]:
    """What the only task leaves if its source is asked for so many rows at a time."""
    settings = Settings({"execution.batch.max-rows": str(poll)})
    stages, (vertex,) = plan(graph), graph.vertices
    (splits,) = assign(graph, vertex.id, 1)
    attempt = BatchAttempt(vertex_id=vertex.id, subtask=0, splits=tuple(splits), result_key=KEY)
    for chunk in BatchTask(graph, stages, attempt, settings, ManualClock(), folder).run(()):
        yield ResultChunk(stage=0, attempt=0, **chunk._asdict())


async def pass_on(driver: FakeSparkDriver, graph: JobGraph, poll: int, folder: Path, end: int | None) -> None:
    """Sends results as a SparkDriver does, the first `end` alone."""
    loop = asyncio.get_running_loop()

    def wait_for(call: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(call, loop).result(60)

    def send() -> None:
        results = RunResults(driver.run, graph, plan(graph), driver.master, wait_for, 1 << 20)
        reading = results.begin()
        for number, chunk in enumerate(chunks(graph, poll, folder)):
            if number == end:
                return
            reading.take(chunk)
        reading.end()
        results.flush()

    await asyncio.to_thread(send)


@pytest.mark.parametrize("lost", [(700, 3), (700, 23), (300, 31), (2000, 9)])
def test_rows_and_text_of_other_polls_come_once(tmp_path: Path, lost: tuple[int, int]) -> None:
    graph = printing_and_collecting()

    async def body() -> None:
        async with control_cluster(tmp_path, jobs=RESTARTING) as cluster:
            job_id = await cluster.submit(graph)
            rows: list[Any] = []

            async def fetch() -> None:
                client = CollectedResults(graph, ResultProof(key=KEY)).of("result0")
                while True:
                    found = await cluster.dispatcher.fetch_collected(job_id, "result0", 100, client.position)
                    taken = client.take(found)
                    if taken is None:
                        return
                    rows.extend(taken)
                    if any(message.last for message in found):
                        return

            fetching = asyncio.ensure_future(fetch())
            for number, (poll, end) in enumerate([lost, (450, 15), (1100, None)], 1):
                driver = await cluster.next_spark_driver(number)
                await driver.begin()
                await eventually(lambda: bool(driver.submissions))  # noqa: B023
                await pass_on(driver, graph, poll, tmp_path / "work", end)
                if end is not None:
                    await cluster.spark_drivers.crash(driver)
                    await cluster.until_status(job_id, JobStatus.RESTARTING)
                    await cluster.pass_time(2)
            await driver.finish()
            assert (await cluster.result(job_id)).status is JobStatus.FINISHED
            await fetching
            assert [int(text.rstrip(",")) for text in rows] == list(range(1, ROWS + 1))
            lines = "".join(cluster.printed).splitlines()
            for name, sign in (("one", 1), ("two", -1)):
                numbers = [line.partition("> ")[2] for line in lines if line.startswith(name)]
                assert numbers == [str(sign * n) for n in range(1, ROWS + 1)]

    run(body())
