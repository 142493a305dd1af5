"""The texts of an EventTimeHolder: what holds event time back, and what to do about it.

Owner: none; pure. Subtasks count from 1 in texts, as in Flink's names of tasks. Times are in UTC.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from yarrow.common.watermark_strategy import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.rpc.messages import EventTimeHolder, HolderReason

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class HolderFacts:
    """The facts about a holder; a holder without split is an operator."""

    operator: str
    subtask: int
    reason: HolderReason
    watermark: int = MIN_TIMESTAMP
    split_id: str = ""
    last_timestamp: int | None = None
    age_ms: int | None = None
    idle: bool = False
    idle_timeout_ms: int | None = None
    #: The task or split that the reason names.
    other: str = ""
    slice_ms: int = 0
    queued: int = 0

    def because(
        self, reason: HolderReason, *, other: str = "", slice_ms: int = 0, queued: int = 0
    ) -> HolderFacts:
        """The same facts with a reason and what it names."""
        return replace(self, reason=reason, other=other, slice_ms=slice_ms, queued=queued)


def time_text(timestamp: int) -> str:
    """A timestamp or watermark in ms as a reader sees it."""
    if timestamp == MIN_TIMESTAMP:
        return "no watermark yet"
    if timestamp == MAX_TIMESTAMP:
        return "the end of event time"
    try:
        moment = _EPOCH + timedelta(milliseconds=timestamp)
    except OverflowError:
        return f"{timestamp} ms"
    return f"{moment:%Y-%m-%d %H:%M:%S}.{moment.microsecond // 1000:03}"


def age_text(milliseconds: int) -> str:
    """A length of time, in seconds."""
    return f"{milliseconds / 1000:.1f} s"


def holder_of(facts: HolderFacts, path: Sequence[str]) -> EventTimeHolder:
    """The holder with its texts; `path` leads from the end whose event time waits."""
    subject = f"'{facts.operator}' (subtask {facts.subtask + 1})"
    if facts.split_id:
        subject = f"split {facts.split_id!r} of {subject}"
    explanation, remedy = _texts(facts, subject)
    return EventTimeHolder(
        operator=facts.operator,
        subtask=facts.subtask,
        split_id=facts.split_id,
        watermark=facts.watermark,
        last_timestamp=facts.last_timestamp,
        age_ms=facts.age_ms,
        idle=facts.idle,
        reason=facts.reason,
        explanation=explanation,
        remedy=remedy,
        path=tuple(path),
    )


def _texts(facts: HolderFacts, subject: str) -> tuple[str, str]:
    """The explanation and the remedy."""
    last = "" if facts.last_timestamp is None else f" of {time_text(facts.last_timestamp)}"
    age = "" if facts.age_ms is None else f"{age_text(facts.age_ms)} ago"
    since = f"{subject} had its last row{last} {age}"
    other, lasts = f"'{facts.other}'", age_text(facts.slice_ms)
    no_idleness = (
        "If it may be silent, give its strategy with_idleness(...): then it is left out after that time"
    )
    match facts.reason:
        case HolderReason.NO_WATERMARKS:
            return (
                f"{subject} makes no watermarks",
                "Give from_source a WatermarkStrategy that makes some, or assign timestamps and watermarks behind it",
            )
        case HolderReason.NO_ROWS_YET if facts.idle_timeout_ms is None:
            return f"{subject} has had no row yet, and no idleness is set", no_idleness
        case HolderReason.NO_ROWS_YET:
            return (
                f"{subject} has had no row yet",
                f"Wait: it is idle after {age_text(facts.idle_timeout_ms or 0)} in which the source can read",
            )
        case HolderReason.NO_TIMESTAMPS:
            return (
                f"{subject} had its last row {age}, and its rows have no timestamps",
                "Give its strategy a timestamp assigner (with_timestamp_assigner), or timestamps to its rows",
            )
        case HolderReason.NO_IDLENESS_SET:
            return f"{since}, and no idleness is set", no_idleness
        case HolderReason.NO_ROWS_SINCE:
            return (
                since,
                f"Wait: it is idle after {age_text(facts.idle_timeout_ms or 0)} in which the source can read",
            )
        case HolderReason.GENERATOR_SAID_NOTHING:
            return (
                f"the generator of {subject} has emitted nothing beyond {time_text(facts.watermark)}",
                "Let it emit in on_event or on_periodic_emit, and look at pipeline.auto-watermark-interval",
            )
        case HolderReason.OLD_ROWS:
            return (
                f"{since}: rows come, and event time is where they are",
                "Wait, or look whether its timestamps are right and its out-of-orderness is not too long",
            )
        case HolderReason.NO_SPLITS:
            return (
                f"{subject} has no split, and holds event time back",
                "Give its strategy with_idleness(...), or lower the parallelism of the source",
            )
    return _texts_of_waiting(facts, subject, other, lasts)


def _texts_of_waiting(facts: HolderFacts, subject: str, other: str, lasts: str) -> tuple[str, str]:
    """The same where event time waits for something else than rows."""
    match facts.reason:
        case HolderReason.PAUSED_BY_ALIGNMENT:
            slowest = f": the group waits for {other}" if facts.other else ""
            return (
                f"{subject} is paused by the alignment of watermarks{slowest}",
                "Look at what the slowest source waits for, or raise the drift of with_watermark_alignment",
            )
        case HolderReason.TIMERS_UNDER_WAY:
            return (
                f"{subject} is firing the timers that its watermark {time_text(facts.watermark)} made due",
                "Wait, or do less in on_timer and in functions of windows",
            )
        case HolderReason.RESULTS_AWAITED:
            return (
                f"{subject} awaits results of rows before its watermark",
                "Look at what its function waits for, or give it a shorter timeout",
            )
        case HolderReason.SLOW_SLICE:
            return (
                f"{subject} waits for {other}, which has been at one slice of work for {lasts}",
                "Look at a thread dump of its worker, and declare a function that waits as blocking",
            )
        case HolderReason.NO_CREDIT:
            return (
                f"{subject} waits for credit of {other}",
                f"Give {other} more parallelism, or find out what makes it slow",
            )
        case HolderReason.WAITS_FOR_BARRIERS:
            return (
                f"{subject} waits for the barriers of a checkpoint",
                "Wait, or use unaligned checkpoints",
            )
        case HolderReason.ALL_IDLE:
            return (
                f"{subject} has only idle inputs, so that event time stands",
                "Send a row: an idle stream goes on with its next one",
            )
        case HolderReason.NOT_RUNNING:
            return f"{subject} does not run", "Look at the state of the job, and at its exceptions"
        case HolderReason.NO_ANSWER:
            return (
                f"{subject} does not answer",
                "Look whether its worker lives, and at the log of its TaskExecutor",
            )
    return (
        f"{subject} has not taken {facts.queued} waiting elements yet",
        "Wait, or give the operator more parallelism",
    )
