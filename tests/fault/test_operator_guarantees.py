"""What operators of time, of calls and of loops keep in checkpoints, left out: the proof by faults must notice.

The fault comes after a checkpoint behind a known row, wherever the machine is then: that checkpoint has late rows
directly before it, calls in flight, rows in the loop, and rows that wait for event time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fault_jobs import JobShape
from tests.support.fault_runs import FaultRun
from tests.support.operator_jobs import CALLS, JOINS, LOOP, OPERATOR_SHAPES, PATTERN, WINDOWS
from yarrow.container.network.feedback.feedback_channel import FeedbackChannel
from yarrow.container.operators.asynchronous.waiting_calls import WaitingCallsOperator
from yarrow.container.operators.cep.time_ordered_rows import TimeOrderedRows
from yarrow.container.operators.stored_watermark import StoredWatermark
from yarrow.container.state.heap_sections import HeapSections
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.fault_plan import PLAN_KEY, RECORD_POINT, FaultAction, FaultPlan, FileFaultPlanner

pytestmark = pytest.mark.fault


class BehindTheHeldRows(FileFaultPlanner):
    """Fires when a checkpoint is complete that began after the rows before the last gate had been read.

    The first notice that is seen after such a row may be of a checkpoint that began before it, and so may the next one.
    """

    def __init__(self, plan: FaultPlan, folder: str) -> None:
        super().__init__(plan, folder)
        self._row_seen = False
        self._first_notice: int | None = None

    def fires(self, point: str, detail: dict[str, object]) -> bool:
        """See FileFaultPlanner."""
        if point == RECORD_POINT:
            source, _, index = str(detail["row"]).partition(":")
            self._row_seen |= int(index) >= (330 if source == "w0" else 165)
        elif point == self.plan.point and self._row_seen:
            number = int(str(detail["checkpoint_id"]))
            self._first_notice = self._first_notice or number
            if number >= self._first_notice + 2:
                return super().fires(point, detail)
        return False


def behind_the_held_rows(arguments: str) -> BehindTheHeldRows:
    """The planner that workers install."""
    fields = json.loads(arguments)
    return BehindTheHeldRows(FaultPlan.from_json(fields["plan"]), fields["folder"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    """Workers are threads of this process, whose classes a test patches."""
    with mini_cluster(1, 2, processes=False) as running:
        yield running


def run(shape: JobShape, cluster: MiniCluster, folder: Path) -> None:
    """Runs the shape with a failure behind such a checkpoint."""
    plan = FaultPlan(0, FileFaultPlanner.ARMING_POINT, FaultAction.RAISE)
    planner = f"{behind_the_held_rows.__module__}:{behind_the_held_rows.__name__}"
    FaultRun(shape, "hashmap", plan, {PLAN_KEY: planner}).execute(cluster, folder)


def without_time(patch: pytest.MonkeyPatch) -> None:
    """Restored operators begin event time anew."""
    patch.setattr(StoredWatermark, "store", lambda self, watermark: None)


def without_timers(patch: pytest.MonkeyPatch) -> None:
    """Restored operators have no timers."""

    def register(self: HeapSections, name: str, section: Any) -> None:
        self._timers[name] = section
        for _ in self._restored.take_timers(name):
            pass

    patch.setattr(HeapSections, "register_timers", register)


def without_waiting_rows(patch: pytest.MonkeyPatch) -> None:
    """Restored patterns lack the rows that wait for event time."""

    def forget(self: TimeOrderedRows, entries: Iterable[Any]) -> None:
        for _ in entries:
            pass

    patch.setattr(TimeOrderedRows, "restore_entries", forget)


def without_calls(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints lack the rows whose results have not left."""
    patch.setattr(WaitingCallsOperator, "snapshot_state", lambda self, checkpoint_id: None)


def without_feedback(patch: pytest.MonkeyPatch) -> None:
    """Checkpoints lack the rows that are in a loop."""
    take_log = FeedbackChannel.take_log

    def forget(self: FeedbackChannel, checkpoint_id: int) -> Any:
        take_log(self, checkpoint_id)
        return ()

    patch.setattr(FeedbackChannel, "take_log", forget)


@pytest.mark.parametrize("shape", OPERATOR_SHAPES, ids=lambda shape: shape.name)
def test_output_is_that_without_faults(shape: JobShape, cluster: MiniCluster, tmp_path: Path) -> None:
    run(shape, cluster, tmp_path)


@pytest.mark.parametrize(
    ("shape", "switch_off"),
    [
        (WINDOWS, without_time),
        (JOINS, without_timers),
        (CALLS, without_calls),
        (LOOP, without_feedback),
        (PATTERN, without_waiting_rows),
    ],
    ids=lambda value: value.name if isinstance(value, JobShape) else value.__name__,
)
def test_without_what_is_kept_rows_are_missing(
    shape: JobShape,
    switch_off: Any,
    cluster: MiniCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    switch_off(monkeypatch)
    with pytest.raises(AssertionError, match=r"[1-9]\d* rows are missing"):
        run(shape, cluster, tmp_path)
