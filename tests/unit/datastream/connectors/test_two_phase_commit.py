"""TwoPhaseCommitSink: order of calls, delivery guarantees, names of transactions, the example of the documentation."""

from __future__ import annotations

import re
import sqlite3
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.counting_ids import CountingIdFactory
from tests.unit.datastream.connectors.harness import JOB, SINK, SinkContext
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.transaction_names import TransactionNames, checkpoint_of
from yarrow.datastream.connectors.two_phase_commit import TransactionContext, TwoPhaseCommitSink

DOCUMENT = Path(__file__).resolve().parents[4] / "docs" / "sinks.md"


class Calls(TwoPhaseCommitSink[str, str]):
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self._begun = 0

    def open(self) -> None:
        self.calls.append("open")

    def begin_transaction(self, context: TransactionContext) -> str:
        self._begun += 1
        return f"t{self._begun}"

    def write(self, transaction: str, rows: Sequence[str], timestamps: Sequence[int | None] | None) -> None:
        self.calls.append(f"{transaction}: {','.join(rows)}")

    def pre_commit(self, transaction: str) -> None:
        self.calls.append(f"pre-commit {transaction}")

    def commit(self, transaction: str) -> None:
        self.calls.append(f"commit {transaction}")

    def abort(self, transaction: str) -> None:
        self.calls.append(f"abort {transaction}")

    def recover(self, context: TransactionContext) -> None:
        self.calls.append("recover")

    def close(self) -> None:
        self.calls.append("close")


def test_a_transaction_holds_the_rows_between_two_checkpoints() -> None:
    sink = Calls()
    committer = sink.create_committer()
    writer = sink.create_writer(SinkContext())
    writer.flush(False)
    assert writer.prepare_commit() == []
    writer.write([], None)
    for rows in (["a", "b"], ["c"]):
        writer.write(rows, None)
    writer.flush(False)
    committables = writer.prepare_commit()
    assert writer.snapshot_state(1) == []
    writer.write(["d"], None)
    committer.commit(committables)
    writer.close()
    committer.close()
    assert sink.calls == [
        "open", "recover", "t1: a,b", "t1: c", "pre-commit t1", "t2: d", "commit t1", "abort t2", "close",
    ]  # fmt: skip


@pytest.mark.parametrize("guarantee", [DeliveryGuarantee.AT_LEAST_ONCE, DeliveryGuarantee.NONE])
def test_without_exactly_once_rows_are_committed_before_checkpoints_and_in_time(
    guarantee: DeliveryGuarantee,
) -> None:
    sink = Calls()
    sink.create_committer()
    context = SinkContext(delivery_guarantee=guarantee)
    writer = sink.create_writer(context)
    writer.write(["a"], None)
    writer.flush(False)
    assert writer.prepare_commit() == []
    writer.write(["b"], None)
    context.advance(1.0)
    writer.close()
    assert sink.calls == [
        "open", "recover", "t1: a", "pre-commit t1", "commit t1", "t2: b", "pre-commit t2", "commit t2",
    ]  # fmt: skip


def names(
    subtask: int = 0,
    parallelism: int = 1,
    restored: int | None = None,
    *,
    job: str = JOB,
    sink: str = SINK,
    ids: CountingIdFactory | None = None,
) -> TransactionNames:
    context = SinkContext(subtask, parallelism, job, sink, restored_checkpoint_id=restored)
    return TransactionNames(context, ids or CountingIdFactory())


def test_leftovers_are_what_began_after_the_restored_checkpoint() -> None:
    ids = CountingIdFactory()
    first = names(ids=ids)
    before = first.next()
    first.checkpoint_taken(4)
    behind = [first.next(), first.next()]
    assert len({before, *behind}) == 3
    assert [checkpoint_of(name) for name in (before, *behind)] == [0, 4, 4]
    assert not any(first.is_leftover(name) for name in (before, *behind))
    restored = names(restored=4, ids=ids)
    assert [restored.is_leftover(name) for name in (before, *behind)] == [False, True, True]
    own = restored.next()
    assert not restored.is_leftover(own)
    anew = names(ids=ids)
    assert all(anew.is_leftover(name) for name in (before, *behind, own))


def test_what_a_later_savepoint_holds_is_no_leftover() -> None:
    ids = CountingIdFactory()
    first = names(ids=ids)
    made = []
    for checkpoint_id in (4, 5, 6):
        first.checkpoint_taken(checkpoint_id)
        made.append(first.next())
    for restored in (4, None):
        context = SinkContext(restored_checkpoint_id=restored, latest_savepoint_id=6)
        again = TransactionNames(context, ids)
        assert [again.is_leftover(name) for name in made] == [False, False, True]


def test_leftovers_of_others_are_left() -> None:
    made = names(subtask=5, parallelism=6).next()
    ids = CountingIdFactory()
    ids.hex_id()
    owners = [subtask for subtask in range(4) if names(subtask, 4, ids=ids).is_leftover(made)]
    assert owners == [1]
    assert not names(1, 4, job=JOB[::-1], ids=ids).is_leftover(made)
    assert not names(1, 4, sink=SINK[::-1], ids=ids).is_leftover(made)
    assert not names(ids=ids).is_leftover("somebody's file")
    with pytest.raises(ValueError, match="somebody's file"):
        checkpoint_of("somebody's file")


@pytest.fixture
def example() -> Iterator[Any]:
    """The module in the documentation."""
    code = next(
        block
        for block in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
        if "class Totals" in block
    )
    module = ModuleType("documented_sink")
    sys.modules[module.__name__] = module
    exec(code, module.__dict__)
    yield module
    del sys.modules[module.__name__]


def test_the_documented_example_moves_rows_once(example: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "totals.db")

    def attempt(restored: int | None) -> tuple[Any, Any]:
        sink = example.Totals(path)
        committer = sink.create_committer()
        return committer, lambda: sink.create_writer(SinkContext(restored_checkpoint_id=restored))

    committer, make_writer = attempt(None)
    writer = make_writer()
    writer.write([("a", 1), ("b", 2)], None)
    writer.flush(False)
    committables = writer.prepare_commit()
    writer.snapshot_state(1)
    writer.write([("lost", 0)], None)
    committer.close()
    # Killed here: checkpoint 1 was complete, nobody was told.
    committer, make_writer = attempt(1)
    committer.commit(committables)
    committer.commit(committables)
    writer = make_writer()
    writer.close()
    committer.close()
    database = sqlite3.connect(path)
    try:
        assert database.execute("select * from totals").fetchall() == [("a", 1), ("b", 2)]
        assert database.execute("select * from staged").fetchall() == []
    finally:
        database.close()
