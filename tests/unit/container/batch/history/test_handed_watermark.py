"""The stream behind a history begins with the hand-over watermark: no function of it sees an earlier time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.batch_runner import collecting_graph, run_batch
from tests.support.history_program import JOB, strategy
from tests.support.split_rows import SplitRows
from tests.unit.runtime.graph.programs import environment
from yarrow.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.runtime.config.options import batch
from yarrow.runtime.graph.batch.history import history_job
from yarrow.state_processor import SavepointEnvironment, SavepointReader

DELAY = 5
ROWS = [(("a", time), time) for time in (0, 10, 20, 30, 22, 40)]


class Seen(KeyedProcessFunction[str, Any, Any]):
    """Tells the watermark that a row sees."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield value[1], ctx.timer_service().current_watermark()


def program(env: StreamExecutionEnvironment, waits: bool) -> DataStream:
    source = SplitRows([ROWS[0::2], ROWS[1::2]], waits=waits)
    rows = env.from_source(source, strategy(DELAY), "rows").uid("rows")
    return rows.key_by(lambda row: row[0]).process(Seen()).uid("seen")


def made(path: str, until: str, parallelism: int) -> None:
    env = environment(parallelism, {batch.HISTORY_UNTIL.key: until})
    env.set_max_parallelism(16)
    graph = collecting_graph(env, program(env, True))
    run_batch(history_job(graph, JOB, path, graph.configuration, drops_rows=False))


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_first_row_of_the_stream_sees_the_watermark_of_the_savepoint(
    tmp_path: Path, parallelism: int
) -> None:
    path = str(tmp_path / "savepoint")
    made(path, "1970-01-01T00:00:00.025Z", parallelism)
    with SavepointReader.read(path) as reader:
        stored = [row["value"] for row in reader.read_union_state("rows", "source-watermark").to_pylist()]
    # One split has come to the end, and the other one, with rows at 0, 20 and 22, has not.
    assert min(stored) == 22 - DELAY - 1
    with SavepointEnvironment(lambda env: program(env, False), path, inputs=0, max_parallelism=16) as running:
        running.advance(1)
        found = dict(running.take())
    assert set(found) == {30, 40}
    assert min(found.values()) >= 22 - DELAY - 1


def test_a_savepoint_of_the_stream_does_not_bear_it(tmp_path: Path) -> None:
    path, later = str(tmp_path / "savepoint"), str(tmp_path / "later")
    made(path, "1970-01-01T00:00:00.025Z", 1)
    with SavepointEnvironment(lambda env: program(env, False), path, inputs=0, max_parallelism=16) as running:
        running.write(later)
    with SavepointReader.read(later) as reader:
        stored = {state.name for state in reader.states("rows")}
    assert "source-splits" in stored and "source-watermark" not in stored
