"""The search for who holds event time back: by hand-made answers of the tasks, for each reason and on its way there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.support.job_graphs import Stage, linear_job
from yarrow.am.jobmaster.event_time.holder_texts import age_text, time_text
from yarrow.am.jobmaster.event_time.time_holders import AskedTask, TimeHolders
from yarrow.runtime.common.ids import ExecutionAttemptID
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.rpc.messages import (
    ChannelTimeReport,
    EventTimeHolder,
    GeneratorReport,
    HolderReason,
    OperatorTimeReport,
    SplitTimeReport,
    TaskTimeReport,
)

NOW = 1_000_000


def split(split_id: str = "a", watermark: int = 100, **facts: Any) -> SplitTimeReport:
    return SplitTimeReport(
        split_id=split_id,
        watermark=watermark,
        **{"last_timestamp": 101, "last_row_ms": NOW - 42_000, **facts},
    )


def source(*splits: SplitTimeReport, watermark: int = 100, **facts: Any) -> OperatorTimeReport:
    made = GeneratorReport(splits=splits, number_of_splits=len(splits), **facts)
    return OperatorTimeReport(name="operator 0", watermark=watermark, idle=False, generator=made)


def report(*operators: OperatorTimeReport, **facts: Any) -> TaskTimeReport:
    plain: dict[str, Any] = {
        "slowest": None,
        "input_watermark": 100,
        "fires_timers": False,
        "blocked": False,
        "slice_ms": 0,
    }
    return TaskTimeReport(
        attempt_id=ExecutionAttemptID("a"), now_ms=NOW, operators=operators, **{**plain, **facts}
    )


def sink(watermark: int = 100, producer: int = 0, **facts: Any) -> TaskTimeReport:
    """A task behind the source whose slowest channel has that watermark."""
    channel = ChannelTimeReport(edge=0, producer=producer, watermark=watermark, queued=7, held=False)
    operator = OperatorTimeReport(
        name="operator 1", watermark=watermark, idle=False, holds_time=facts.pop("holds_time", False)
    )
    return report(operator, **{"slowest": channel, "input_watermark": watermark, **facts})


class Asked:
    """A source and a sink behind it, with their answers by vertex and subtask."""

    def __init__(self, *stages: Stage) -> None:
        self.job: JobGraph = linear_job(*(stages or (Stage(1), Stage(1))))
        self.tasks: list[AskedTask] = []

    def answer(
        self, vertex: int, found: TaskTimeReport | None, subtask: int = 0, worker: str = "", **facts: bool
    ) -> Asked:
        state = {"is_running": True, "has_ended": False, **facts}
        at = self.job.vertices[vertex]
        self.tasks.append(AskedTask(at, subtask, worker or f"{vertex}/{subtask}", report=found, **state))
        return self

    @property
    def holder(self) -> EventTimeHolder:
        (found,) = TimeHolders(self.job, self.tasks).holders()
        return found


def held_by(generator: OperatorTimeReport, **facts: Any) -> EventTimeHolder:
    return Asked().answer(0, report(generator, **facts)).answer(1, sink()).holder


def test_the_search_ends_at_the_silent_split() -> None:
    found = held_by(source(split("b"), split("a", 500)))
    assert (found.operator, found.subtask, found.split_id) == ("operator 0", 0, "b")
    assert (found.watermark, found.last_timestamp, found.age_ms) == (100, 101, 42_000)
    assert found.path == ("operator 1", "operator 0")
    assert found.reason is HolderReason.NO_IDLENESS_SET
    assert found.explanation == (
        "split 'b' of 'operator 0' (subtask 1) had its last row of 1970-01-01 00:00:00.101 42.0 s ago,"
        " and no idleness is set"
    )
    assert "with_idleness" in found.remedy


def test_it_follows_the_slowest_channel_to_its_subtask() -> None:
    asked = Asked(Stage(2), Stage(2))
    asked.answer(0, report(source(split("fast", 900), watermark=900)))
    asked.answer(0, report(source(split("slow", 100))), subtask=1)
    asked.answer(1, sink(900, producer=0)).answer(1, sink(100, producer=1), subtask=1)
    assert (asked.holder.subtask, asked.holder.split_id) == (1, "slow")


SPLITS: dict[HolderReason, tuple[dict[str, Any], dict[str, Any]]] = {
    HolderReason.NO_ROWS_YET: ({"last_row_ms": None, "last_timestamp": None}, {}),
    HolderReason.NO_TIMESTAMPS: ({"last_row_ms": NOW, "last_timestamp": None}, {}),
    HolderReason.NO_IDLENESS_SET: ({}, {}),
    HolderReason.NO_ROWS_SINCE: ({}, {"idle_timeout_ms": 60_000}),
    HolderReason.GENERATOR_SAID_NOTHING: ({"last_row_ms": NOW}, {"own_generator": True}),
    HolderReason.OLD_ROWS: ({"last_row_ms": NOW}, {}),
    HolderReason.PAUSED_BY_ALIGNMENT: ({"paused": True}, {"alignment_group": "g"}),
    HolderReason.ALL_IDLE: ({"idle": True}, {}),
    HolderReason.NO_WATERMARKS: ({}, {"makes_watermarks": False}),
}


@pytest.mark.parametrize("reason", SPLITS, ids=lambda reason: reason.value)
def test_the_reasons_of_a_split(reason: HolderReason) -> None:
    of_split, of_generator = SPLITS[reason]
    found = held_by(source(split(**of_split), **of_generator))
    assert found.reason is reason
    assert found.explanation
    assert found.remedy


def test_a_paused_split_names_whom_its_group_waits_for() -> None:
    asked = Asked(Stage(2), Stage(1))
    asked.answer(0, report(source(split("ahead", 900, paused=True), watermark=900, alignment_group="g")))
    slow = source(split("behind", 950), watermark=950, alignment_group="g")
    asked.answer(0, report(slow), subtask=1)
    asked.answer(1, sink(900))
    assert asked.holder.reason is HolderReason.PAUSED_BY_ALIGNMENT
    assert "the group waits for 'operator 0, split 'ahead''" in asked.holder.explanation


def test_a_source_without_splits_and_one_that_emits_by_itself() -> None:
    assert held_by(source()).reason is HolderReason.NO_SPLITS
    assert held_by(source(own_generator=True)).reason is HolderReason.GENERATOR_SAID_NOTHING


def test_rows_without_timestamps_are_named_whether_they_come_or_not() -> None:
    for last_row_ms in (NOW, NOW - 42_000):
        found = held_by(source(split(last_row_ms=last_row_ms, last_timestamp=None)))
        assert found.reason is HolderReason.NO_TIMESTAMPS
        assert found.explanation.endswith("s ago, and its rows have no timestamps")
    own = held_by(source(split(last_row_ms=NOW, last_timestamp=None), own_generator=True))
    assert own.reason is HolderReason.GENERATOR_SAID_NOTHING


def test_a_source_that_lacks_credit_names_the_slow_consumer() -> None:
    found = held_by(source(split()), blocked=True)
    assert found.reason is HolderReason.NO_CREDIT
    assert "waits for credit of 'vertex 1'" in found.explanation


def test_a_slow_slice_is_named_also_of_another_task_of_the_worker() -> None:
    asked = Asked().answer(0, report(source(split())), worker="w").answer(1, sink(slice_ms=5_000), worker="w")
    assert asked.holder.reason is HolderReason.SLOW_SLICE
    assert (
        "waits for 'vertex 1 (1/1)', which has been at one slice of work for 5.0 s"
        in asked.holder.explanation
    )


TAKEN: dict[HolderReason, dict[str, Any]] = {
    HolderReason.INPUT_NOT_TAKEN: {},
    HolderReason.WAITS_FOR_BARRIERS: {"aligns_barriers": True},
    HolderReason.SLOW_SLICE: {"slice_ms": 3_000},
}


@pytest.mark.parametrize("reason", TAKEN, ids=lambda reason: reason.value)
def test_a_watermark_that_was_sent_and_not_taken(reason: HolderReason) -> None:
    asked = Asked().answer(0, report(source(split(), watermark=900))).answer(1, sink(100, **TAKEN[reason]))
    assert (asked.holder.operator, asked.holder.reason) == ("operator 1", reason)


def test_timers_and_results_of_the_head_hold_the_watermark() -> None:
    asked = Asked().answer(0, report(source(split(), watermark=900)))
    firing = asked.answer(1, sink(100, fires_timers=True, input_watermark=900)).holder
    assert (firing.operator, firing.reason) == ("operator 1", HolderReason.TIMERS_UNDER_WAY)
    asked = Asked().answer(0, report(source(split(), watermark=900)))
    awaiting = asked.answer(1, sink(100, holds_time=True, input_watermark=900)).holder
    assert awaiting.reason is HolderReason.RESULTS_AWAITED


def test_idle_inputs_stand() -> None:
    idle = msgspec.structs.replace(sink(100), slowest=None)
    asked = Asked().answer(0, report(source(split(idle=True)))).answer(1, idle)
    assert (asked.holder.operator, asked.holder.reason) == ("operator 1", HolderReason.ALL_IDLE)


def test_tasks_that_do_not_run_or_answer() -> None:
    silent = Asked().answer(0, None).answer(1, sink())
    assert silent.holder.reason is HolderReason.NO_ANSWER
    assert TimeHolders(silent.job, silent.tasks).silent() == ("vertex 0 (1/1)",)
    waiting = Asked().answer(0, None, is_running=False).answer(1, sink())
    assert waiting.holder.reason is HolderReason.NOT_RUNNING
    ended = Asked().answer(0, None, is_running=False, has_ended=True).answer(1, sink())
    assert ended.holder.reason is HolderReason.INPUT_NOT_TAKEN


def test_nobody_holds_back_what_has_ended() -> None:
    asked = Asked().answer(0, report(source(split(), watermark=MAX_TIMESTAMP))).answer(1, sink(MAX_TIMESTAMP))
    assert TimeHolders(asked.job, asked.tasks).holders() == ()


def test_the_table_has_the_least_and_greatest_watermark_of_each_operator() -> None:
    asked = Asked(Stage(2), Stage(1))
    asked.answer(0, report(source(split(), watermark=300)))
    asked.answer(0, report(source(split(), watermark=MIN_TIMESTAMP)), subtask=1)
    asked.answer(1, sink(MIN_TIMESTAMP, producer=1))
    first, second = TimeHolders(asked.job, asked.tasks).operators()
    assert (first.name, first.least, first.subtask, first.greatest) == ("operator 0", MIN_TIMESTAMP, 1, 300)
    assert (second.name, second.least) == ("operator 1", MIN_TIMESTAMP)


def test_times_are_texts() -> None:
    assert time_text(MIN_TIMESTAMP) == "no watermark yet"
    assert time_text(MAX_TIMESTAMP) == "the end of event time"
    assert time_text(1_700_000_000_123) == "2023-11-14 22:13:20.123"
    assert time_text(-1) == "1969-12-31 23:59:59.999"
    assert time_text(MAX_TIMESTAMP - 1) == f"{MAX_TIMESTAMP - 1} ms"
    assert age_text(1_550) == "1.6 s"
