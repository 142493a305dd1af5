"""The largest key group of a task, and its key: told when the task begins with it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.support.batch_runner import collecting_graph, run_batch
from tests.unit.runtime.graph.programs import environment
from yarrow.common import Types
from yarrow.container.batch import key_group_sizes
from yarrow.container.batch.driver.stage_progress import StageProgress
from yarrow.container.batch.driver.task_messages import AttemptEnded, AttemptStarted
from yarrow.container.batch.largest_key_group import LargestKeyGroup
from yarrow.datastream import DataStream, KeyedProcessFunction, StreamExecutionEnvironment
from yarrow.runtime.data.key_groups import key_group_of
from yarrow.runtime.graph.batch.batch_planner import plan
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import LargeKeyGroup


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_group_sizes, "LARGE_RECORDS", 1000)


#: Values that were folded before the exchange are not counted as the records in them.
UNFOLDED = {"execution.batch.combine": "false"}


class Passing(KeyedProcessFunction[Any, Any, Any]):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield value


def skewed(env: StreamExecutionEnvironment) -> DataStream:
    """2000 records of one key among 4000."""
    rows = [("much" if n % 2 else f"little {n % 50}", n) for n in range(4000)]
    return env.from_collection(rows, Types.TUPLE([Types.STRING(), Types.LONG()]))


def largest_of(env: StreamExecutionEnvironment, stream: DataStream) -> list[LargestKeyGroup]:
    found: list[LargestKeyGroup] = []
    run_batch(collecting_graph(env, stream), largest=found.append)
    return found


@pytest.mark.parametrize("operator", ["process", "reduce"])
def test_the_key_of_most_records_is_named(operator: str) -> None:
    env = environment(2, UNFOLDED)
    keyed = skewed(env).key_by(lambda row: row[0])
    stream = keyed.process(Passing()) if operator == "process" else keyed.reduce(lambda a, b: b)
    found = largest_of(env, stream)
    assert len(found) == 2, "each task tells once"
    assert sum(each.task_records for each in found) == 4000
    large = max(found, key=lambda each: each.records)
    assert (large.key_group, large.key) == (key_group_of("much", 128), "'much'")
    assert 2000 <= large.records < 4000
    (small,) = (each for each in found if each is not large)
    assert small.key == "" and small.records < 1000


def test_the_key_of_columns_is_named() -> None:
    env = environment(1, UNFOLDED)
    schema = pa.schema([("key", pa.string()), ("n", pa.int64())])
    columns = skewed(env).rebalance().to_arrow(schema)
    (large,) = largest_of(env, columns.key_by("key").aggregate([("n", "sum")]).to_rows())
    assert large.key == "'much'"
    assert large.records >= 2000


def test_keys_that_share_a_group_are_not_named() -> None:
    env = environment(1, UNFOLDED)
    rows = env.from_collection(range(2000)).key_by(lambda n: n)
    found = largest_of(env, rows.reduce(lambda a, b: a).set_max_parallelism(1))
    assert [(each.records, each.key) for each in found] == [(2000, "")]


def three_tasks() -> JobGraph:
    env = environment(3)
    return collecting_graph(env, env.from_collection([1]).key_by(lambda n: n).reduce(lambda a, b: a))


def progress_with(*largest: LargestKeyGroup, done: tuple[int, ...] = ()) -> LargeKeyGroup | None:
    stages = plan(three_tasks())
    position = next(n for n, stage in enumerate(stages.stages) if stage.parallelism == 3 and stage.inputs)
    progress = StageProgress(stages)
    for subtask in range(3):
        attempt = AttemptStarted(run=0, stage=position, subtask=subtask, attempt=0, pid=1)
        progress.started(attempt, 1)
        if subtask < len(largest):
            progress.key_groups_read(attempt, largest[subtask])
        if subtask in done:
            progress.progressed(attempt, AttemptEnded(records_in=1, records_out=1), 2)
    return progress.all()[position].large_key_group


def group(records: int, task_records: int, task_key_groups: int) -> LargestKeyGroup:
    return LargestKeyGroup(
        key_group=5, records=records, key="'k'", task_records=task_records, task_key_groups=task_key_groups
    )


def test_a_far_larger_group_is_found_while_its_task_runs() -> None:
    found = progress_with(group(500_000, 520_000, 41))
    assert found is not None
    assert (found.key_group, found.key, found.records, found.mean_records, found.subtask) == (
        *(5, "'k'", 500_000, 500),
        0,
    )


@pytest.mark.parametrize(
    "largest",
    [
        # Few records; ten times the others at most; all alike.
        group(90_000, 90_100, 40),
        group(500_000, 500_000 + 40 * 60_000, 41),
        group(500_000, 5_000_000, 10),
    ],
)
def test_other_groups_are_not(largest: LargestKeyGroup) -> None:
    assert progress_with(largest) is None


def test_a_task_of_one_group_is_compared_with_tasks_that_are_done() -> None:
    alone = group(500_000, 500_000, 1)
    assert progress_with(alone) is None
    assert progress_with(alone, group(400_000, 400_000, 1), done=(1,)) is None
    found = progress_with(alone, group(400, 400, 1), done=(1,))
    assert found is not None and found.mean_records == 400
    # All the other tasks have got nothing.
    assert progress_with(alone, done=(1, 2)) is not None
