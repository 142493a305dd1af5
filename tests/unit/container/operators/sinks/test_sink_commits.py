"""Commits: tried again with growing delays and in order, given up by name; what becomes of results nobody commits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import pytest

from tests.unit.container.operators.sinks.sink_harness import (
    WITH_CHECKPOINTS,
    restored_from,
    sink_operator,
    snapshot,
)
from yarrow.container.operators.sinks.sink_committing import (
    MAX_DELAY_SECONDS,
    CommitFailedError,
    RetrySettings,
)
from yarrow.container.operators.sinks.sink_writing import SinkWritingOperator
from yarrow.datastream.connectors.base import (
    CommitRejectedError,
    Committer,
    Sink,
    SinkWriter,
    SinkWriterContext,
)
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.ids import ExecutionAttemptID


class Outside:
    """What a sink of this module sees of the world; each test begins with an empty one."""

    visible: ClassVar[list[Any]] = []
    aborted: ClassVar[list[Any]] = []
    #: What the next commits raise.
    troubles: ClassVar[list[Exception]] = []
    calls: ClassVar[list[str]] = []


class Batches(SinkWriter[Any]):
    def __init__(self, restored: Sequence[Any]) -> None:
        self._rows = [row for rows in restored for row in rows]
        Outside.calls.append("writer")

    def write(self, rows: Sequence[Any], timestamps: Sequence[int | None] | None) -> None:
        self._rows += rows

    def flush(self, end_of_input: bool) -> None:
        Outside.calls.append("flush at the end" if end_of_input else "flush")

    def prepare_commit(self) -> list[Any]:
        rows, self._rows = self._rows, []
        return [{"row": row} for row in rows]

    def close(self) -> None:
        Outside.calls.append("close")


class Visible(Committer):
    def commit(self, committables: Sequence[Any]) -> None:
        if Outside.troubles:
            raise Outside.troubles.pop(0)
        Outside.visible += [committable["row"] for committable in committables]

    def abort(self, committables: Sequence[Any]) -> None:
        Outside.aborted += [committable["row"] for committable in committables]


class BatchSink(Sink[Any]):
    def create_writer(self, context: SinkWriterContext, restored: Sequence[Any] = ()) -> SinkWriter[Any]:
        return Batches(restored)

    def create_committer(self) -> Committer | None:
        return Visible()


class WithoutCommitter(BatchSink):
    def create_committer(self) -> Committer | None:
        return None


@pytest.fixture(autouse=True)
def empty_outside() -> None:
    for values in (Outside.visible, Outside.aborted, Outside.troubles, Outside.calls):
        values.clear()


def opened(
    sink: Sink[Any] | None = None, configuration: dict[str, str] | None = None, **more: Any
) -> tuple[SinkWritingOperator, ManualClock]:
    clock = ManualClock()
    settings = WITH_CHECKPOINTS if configuration is None else configuration
    operator = sink_operator(sink or BatchSink(), clock, configuration=settings, **more)
    operator.open()
    return operator, clock


def wait(operator: SinkWritingOperator, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    if (due := operator.seconds_until_upkeep()) is not None and due <= 0:
        operator.upkeep()


def available(operator: SinkWritingOperator) -> bool:
    return operator.is_available


def drained(operator: SinkWritingOperator) -> bool:
    return operator.is_drained


def test_a_commit_is_tried_again_and_overtaken_by_nothing() -> None:
    operator, clock = opened()
    for checkpoint_id, row in ((1, "a"), (2, "b"), (3, "c")):
        operator.take_rows([row], None)
        snapshot(operator, checkpoint_id)
    Outside.troubles += [OSError("down"), OSError("still down")]
    operator.notify_checkpoint_complete(1)
    operator.notify_checkpoint_complete(2)
    assert Outside.visible == []
    first = operator.seconds_until_upkeep()
    assert first is not None and 0.05 <= first <= 0.1, "shortened by chance, at most to the half"
    wait(operator, clock, 0.1)
    assert Outside.visible == []
    second = operator.seconds_until_upkeep()
    assert second is not None and 0.1 <= second <= 0.2
    wait(operator, clock, 0.2)
    assert Outside.visible == ["a", "b"]
    assert operator.seconds_until_upkeep() is None
    operator.notify_checkpoint_complete(3)
    operator.notify_checkpoint_complete(3)
    operator.notify_checkpoint_complete(2)
    assert Outside.visible == ["a", "b", "c"]


def test_delays_grow_to_a_limit() -> None:
    retry = RetrySettings(100, 0.1)
    assert [retry.delay_after(n) for n in (1, 2, 3)] == pytest.approx([0.1, 0.2, 0.4])
    assert retry.delay_after(99) == MAX_DELAY_SECONDS


def test_what_cannot_be_committed_fails_naming_sink_committable_and_cause() -> None:
    operator, clock = opened(configuration={**WITH_CHECKPOINTS, "sink.committer.retries": "1"})
    operator.take_rows(["a"], None)
    snapshot(operator, 4)
    Outside.troubles += [OSError("down"), OSError("for ever")]
    operator.notify_checkpoint_complete(4)
    with pytest.raises(
        CommitFailedError,
        match=r"sink 'Sink: Writer' cannot commit \{'row': 'a'\} of checkpoint 4 \(tried 2 times; see "
        r"sink.committer.retries\): OSError: for ever",
    ) as failed:
        wait(operator, clock, 1)
    assert not failed.value.is_final, "a restart tries again"
    # Its checkpoint is complete: the result belongs to the restore, not to the dustbin.
    operator.close()
    assert Outside.aborted == []


def test_a_rejected_commit_is_not_tried_again() -> None:
    operator, _ = opened()
    operator.take_rows(["a"], None)
    snapshot(operator, 1)
    Outside.troubles.append(CommitRejectedError("expired"))
    with pytest.raises(CommitFailedError, match="another attempt cannot help") as failed:
        operator.notify_checkpoint_complete(1)
    assert failed.value.is_final, "no restart helps either"


def test_results_of_an_aborted_checkpoint_are_committed_with_the_next() -> None:
    operator, _ = opened()
    for checkpoint_id, row in ((1, "a"), (2, "b")):
        operator.take_rows([row], None)
        snapshot(operator, checkpoint_id)
        if checkpoint_id == 1:
            operator.notify_checkpoint_aborted(1)
    operator.notify_checkpoint_complete(2)
    assert Outside.visible == ["a", "b"]


def test_only_what_no_checkpoint_can_bring_back_is_aborted_on_close() -> None:
    operator, _ = opened()
    operator.take_rows(["held by 1"], None)
    snapshot(operator, 1)
    operator.take_rows(["held by the aborted 2"], None)
    snapshot(operator, 2)
    operator.notify_checkpoint_aborted(2)
    operator.take_rows(["prepared for 3"], None)
    operator.prepare_snapshot(3)
    operator.close()
    assert Outside.aborted == ["held by the aborted 2", "prepared for 3"]
    assert Outside.visible == []


def test_restored_results_are_committed_before_the_writer_is_made() -> None:
    first, _ = opened()
    first.take_rows(["a", "b"], None)
    state = snapshot(first, 7)
    Outside.calls.clear()
    Outside.troubles.append(OSError("down"))
    operator, clock = opened(restored=restored_from(7, state))
    assert not available(operator)
    assert Outside.calls == []
    # A checkpoint meanwhile holds what the restored one held.
    again = snapshot(operator, 8)
    wait(operator, clock, 0.1)
    assert Outside.visible == ["a", "b"]
    assert available(operator)
    assert Outside.calls == ["writer"]
    Outside.visible.clear()
    opened(restored=restored_from(8, again))
    assert Outside.visible == ["a", "b"]


def test_without_checkpoints_the_end_of_the_input_commits() -> None:
    operator, clock = opened(configuration={})
    operator.take_rows(["a", "b"], None)
    Outside.troubles.append(OSError("down"))
    operator.finish()
    wait(operator, clock, 0)
    assert not drained(operator)
    wait(operator, clock, 0.1)
    assert drained(operator)
    assert Outside.visible == ["a", "b"]
    assert Outside.calls == ["writer", "flush at the end"]


@pytest.mark.parametrize("configuration", [{}, WITH_CHECKPOINTS])
def test_the_tail_of_a_drained_job_belongs_to_the_savepoint_that_stops_it(
    configuration: dict[str, str],
) -> None:
    operator, _ = opened(configuration=configuration)
    operator.take_rows(["a"], None)
    operator.finish()
    snapshot(operator, 1)
    assert operator.seconds_until_upkeep() is None
    assert not drained(operator)
    operator.notify_checkpoint_complete(1)
    assert drained(operator)
    assert Outside.visible == ["a"]


def test_with_checkpoints_the_tail_waits_for_the_final_one() -> None:
    operator, _ = opened()
    operator.take_rows(["a"], None)
    operator.finish()
    assert not drained(operator)
    assert Outside.visible == []
    snapshot(operator, 1)
    assert not drained(operator)
    operator.notify_checkpoint_complete(1)
    assert drained(operator)
    assert Outside.visible == ["a"]


def test_a_sink_without_committer_is_flushed_before_checkpoints() -> None:
    operator, _ = opened(WithoutCommitter())
    operator.take_rows(["a"], None)
    snapshot(operator, 1)
    operator.notify_checkpoint_complete(1)
    operator.finish()
    assert drained(operator)
    operator.close()
    assert Outside.calls == ["writer", "flush", "flush at the end", "close"]


def test_committables_without_a_safe_form_are_pickled() -> None:
    operator, _ = opened()
    row = ExecutionAttemptID
    operator.take_rows([row], None)
    state = snapshot(operator, 1)
    opened(restored=restored_from(1, state))
    assert Outside.visible == [row]


def test_metrics_count_commits() -> None:
    operator, clock = opened()
    operator.take_rows(["a", "b"], None)
    snapshot(operator, 1)
    Outside.troubles.append(OSError("down"))
    operator.notify_checkpoint_complete(1)
    wait(operator, clock, 0.1)
    values = operator.context.environment.metrics.values()
    counts = {name.rpartition(".")[2]: value for name, value in values.items()}
    assert (counts["successfulCommittables"], counts["failedCommittables"]) == (2, 1)
    assert (counts["retriedCommittables"], counts["pendingCommittables"]) == (1, 0)


def test_a_task_that_had_ended_commits_what_its_last_checkpoint_holds() -> None:
    first, _ = opened()
    first.take_rows(["a"], None)
    first.finish()
    state = snapshot(first, 3)
    Outside.calls.clear()
    Outside.troubles.append(OSError("down"))
    clock = ManualClock()
    operator = sink_operator(
        BatchSink(), clock, configuration=WITH_CHECKPOINTS, restored=restored_from(3, state)
    )
    operator.resume_finished()
    assert not drained(operator)
    wait(operator, clock, 0.1)
    assert drained(operator)
    operator.close()
    assert Outside.visible == ["a"]
    assert Outside.calls == []
