"""Records that a source gave and its chain had not run at a checkpoint: each is run once, behind its split's others."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pyarrow as pa
import pytest

from tests.support.checkpoint_harness import CheckpointHarness, TakenCheckpoint
from yarrow.common.values.conditions import WantedColumns
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.operators.sources.carried_records import (
    CARRIED,
    can_be_carried,
    decode_carried,
    encode_carried,
)
from yarrow.container.operators.sources.source_reader import ReadingSource
from yarrow.container.task.waiting_records import WaitingRecords
from yarrow.datastream import MapFunction, StreamExecutionEnvironment
from yarrow.datastream.connectors.base import SourceRecords
from yarrow.datastream.connectors.datagen import DataGeneratorSource
from yarrow.datastream.connectors.number_seq import even_ranges
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator, unassigned_or
from yarrow.runtime.graph.connector_spec import SourceOperator
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.table.expressions import col

COUNT = 1200
SPLIT = 200


# ---------------------------------------------------------------------- restored, by workers of this process


class Seen(MapFunction[int, int]):
    """Notes its rows; workers are threads here."""

    lock: ClassVar[threading.Lock] = threading.Lock()
    rows: ClassVar[list[int]] = []

    def map(self, value: int) -> int:
        time.sleep(0.001)
        with Seen.lock:
            Seen.rows.append(value)
        return value


class FewSplits(DataGeneratorSource[int]):
    """Few splits."""

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> Any:
        return OnRequestEnumerator(context, unassigned_or(checkpoint, even_ranges(0, COUNT, COUNT // SPLIT)))


def job(parallelism: int) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    source = FewSplits(lambda i: i, COUNT)
    env.from_source(source, WatermarkStrategy.no_watermarks(), "few splits").map(Seen()).filter(
        lambda v: False
    ).print()
    return env.get_job_graph("carried")


@pytest.fixture
def workers() -> Iterator[CheckpointHarness]:
    Seen.rows = []
    with CheckpointHarness(2, processes=False) as harness:
        yield harness
        if any(not state.is_terminal for state in harness.states.values()):
            harness.cancel_and_wait()
    harness.close()


def carried_by(taken: TakenCheckpoint) -> int:
    return sum(
        len(named.elements)
        for acknowledged in taken.acknowledged.values()
        for state in acknowledged.states.values()
        for handle in state.operator
        for named in handle.states
        if named.name == CARRIED
    )


@pytest.mark.parametrize("after", [1, 2, 3])
def test_each_record_is_run_once_and_in_the_order_of_its_split(
    workers: CheckpointHarness, after: int
) -> None:
    workers.start(job(2))
    workers.until_all(ExecutionState.RUNNING)
    taken = workers.checkpoint(1)
    while not carried_by(taken):
        taken = workers.checkpoint(taken.checkpoint_id + 1)
    before = set(Seen.rows)
    workers.cancel_and_wait()
    Seen.rows = []
    workers.start(job(after), taken)
    # Another checkpoint while what was restored waits.
    workers.until_all(ExecutionState.RUNNING)
    again = workers.checkpoint(taken.checkpoint_id + 1)
    workers.until_all(ExecutionState.FINISHED)
    behind = Counter(Seen.rows)
    assert max(behind.values()) == 1
    # Nothing is lost: what was not run before the checkpoint was run behind it.
    assert before | set(behind) == set(range(COUNT))
    for first in range(0, COUNT, SPLIT):
        rows = [row for row in Seen.rows if first <= row < first + SPLIT]
        assert rows == list(range(first + SPLIT - len(rows), first + SPLIT))
    assert again.acknowledged


# ---------------------------------------------------------------------- the stored form


def test_records_go_where_their_split_goes() -> None:
    records = [
        SourceRecords([1, 2], [10, None], "a", [("tag", "x")], 3, ("old",)),
        SourceRecords(range(3, 5), None, "ended"),
        SourceRecords([5], None, None),
    ]
    elements = encode_carried(records, 1, 2, {"a"})
    # Nobody has the split: with the same parallelism the rest stays with subtask 1.
    assert [list(found.rows) for found in decode_carried(elements, 0, 2, {"b"})] == []
    stayed = decode_carried(elements, 1, 2, {"a"})
    assert [list(found.rows) for found in stayed] == [[1, 2], [3, 4], [5], []]
    assert stayed[0] == SourceRecords([1, 2], [10, None], "a", [("tag", "x")], 0, ("old",))
    # The split that had ended holds back no watermark behind its last record.
    assert stayed[-1].finished_before == ("ended",)
    owners = [
        [list(found.rows) for found in decode_carried(elements, subtask, 3, {"a"} if subtask == 2 else set())]
        for subtask in range(3)
    ]
    assert owners == [[], [[3, 4], [5], []], [[1, 2]]]


def test_columns_are_carried_as_columns() -> None:
    batch = pa.RecordBatch.from_pydict({"n": [1, 2, 3], "s": ["a", None, "c"]})
    waiting = WaitingRecords()
    waiting.put(SourceRecords(batch, None, "a"))
    assert waiting.take(1).rows == batch.slice(0, 1)
    (found,) = decode_carried(encode_carried(waiting.rest(), 0, 1, {"a"}), 0, 1, {"a"})
    assert found.rows == batch.slice(1)


@dataclass
class Held:
    """A row with something that no snapshot holds."""

    lock: Any


class Refused(Exception):
    """A row that is an exception with more arguments than it tells its base."""

    def __init__(self, what: str, status: int) -> None:
        super().__init__(what)
        self.status = status


def test_rows_that_no_snapshot_can_hold_are_known_beforehand() -> None:
    assert can_be_carried([SourceRecords([1, "a", (2, {"b": [3.0]})], [1, 2, 3], "a")], "source")
    assert not can_be_carried([SourceRecords([1, Held(threading.Lock())])], "source")
    assert not can_be_carried([SourceRecords([1], side=[("tag", threading.Lock())])], "source")
    # Pickled it is, but nobody can make it again.
    assert not can_be_carried([SourceRecords([1, Refused("login", 403)])], "source")


def test_rows_that_lack_columns_run_before_the_cut_in_place_of_being_carried() -> None:
    records = [SourceRecords(pa.RecordBatch.from_pydict({"n": [1]}))]
    assert ReadingSource("files", SourceOperator(source=b"")).carry(records)
    passing_over = WantedColumns(condition=col("n") > 1)
    assert ReadingSource("files", SourceOperator(source=b"", wanted=passing_over)).carry(records)
    # A program that goes on from the snapshot may read the others.
    assert not ReadingSource("files", SourceOperator(source=b"", wanted=WantedColumns(("n",)))).carry(records)


def test_what_waits_is_handed_out_in_parts() -> None:
    waiting = WaitingRecords()
    waiting.put(SourceRecords(range(10), list(range(10)), "a", [("tag", 1)], 2, ("old",)))
    waiting.put(SourceRecords(tuple("xyz"), None, "b"))
    assert waiting.rows == 13
    assert waiting.take(4) == SourceRecords(range(4), [0, 1, 2, 3], "a", [("tag", 1)], 2, ("old",))
    assert waiting.rows == 9
    assert waiting.rest() == [
        SourceRecords(range(4, 10), [4, 5, 6, 7, 8, 9], "a"),
        SourceRecords(("x", "y", "z"), None, "b"),
    ]
    assert waiting.take(100).rows == range(4, 10)
    assert waiting.take(3).rows == ("x", "y", "z")
    assert not waiting and waiting.rest() == []


def test_lists_of_one_split_wait_as_one() -> None:
    waiting = WaitingRecords()
    waiting.put(SourceRecords([1, 2], None, "a", [("tag", 1)], 1, ("old",)))
    waiting.put(SourceRecords([3], None, "a", None, 2))
    assert waiting.take(1) == SourceRecords([1], None, "a", [("tag", 1)], 3, ("old",))
    waiting.put(SourceRecords([4], None, "a"))
    assert waiting.rows == 3
    assert waiting.take(9) == SourceRecords([2, 3, 4], None, "a")
    waiting.put(SourceRecords([5], [50], "a"))
    waiting.put(SourceRecords([6], [60], "a"))
    assert waiting.take(9) == SourceRecords([5, 6], [50, 60], "a")


@pytest.mark.parametrize(
    "behind",
    [
        SourceRecords([2], None, "b"),
        SourceRecords([2], [20], "a"),
        SourceRecords([2], None, "a", [("tag", 1)]),
        SourceRecords([2], None, "a", None, 0, ("b",)),
        SourceRecords(range(2, 3), None, "a"),
    ],
    ids=["split", "time", "side-output", "ended-split", "range"],
)
def test_records_with_something_between_them_stay_apart(behind: SourceRecords) -> None:
    waiting = WaitingRecords()
    first = SourceRecords([1], None, "a")
    waiting.put(first)
    waiting.put(behind)
    assert [waiting.take(9), waiting.take(9)] == [first, behind]
