"""Messages of the question who holds event time back: what each task knows, and what follows of it.

Owner: none (frozen values). Times are ms since the epoch in UTC; MIN_TIMESTAMP stands for no watermark yet. They
describe a moment, and nobody acts on them.
"""

from __future__ import annotations

from enum import Enum

from yarrow.common.job_status import JobStatus
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.rpc.messages.base import Message


class SplitTimeReport(Message, frozen=True, kw_only=True):
    """Event time of one split, or of the input of a generator behind a source."""

    #: "" = the records name no split, or the generator is behind a source.
    split_id: str
    watermark: int
    #: Timestamp of the last row; None = there was none, or it is not known.
    last_timestamp: int | None = None
    #: When that row ran.
    last_row_ms: int | None = None
    idle: bool = False
    #: The alignment of watermarks does not read it.
    paused: bool = False


class GeneratorReport(Message, frozen=True, kw_only=True):
    """An operator that makes watermarks: a source, or assign_timestamps_and_watermarks."""

    #: The slowest splits that are not idle, slowest first, else some idle ones.
    splits: tuple[SplitTimeReport, ...]
    number_of_splits: int
    #: Time without rows in ms after which a split is idle; None = never.
    idle_timeout_ms: int | None = None
    #: The program has written the generator, or emits watermarks in its source function.
    own_generator: bool = False
    #: False for a source without a strategy of watermarks.
    makes_watermarks: bool = True
    #: Group of aligned sources; "" = none.
    alignment_group: str = ""


class OperatorTimeReport(Message, frozen=True, kw_only=True):
    """Event time behind one operator of a chain."""

    name: str
    watermark: int
    idle: bool
    #: None = it makes no watermarks.
    generator: GeneratorReport | None = None
    #: Watermarks leave it behind the results of the rows before them, as at an asynchronous function.
    holds_time: bool = False


class ChannelTimeReport(Message, frozen=True, kw_only=True):
    """The channel whose watermark is the least of a task's active channels."""

    #: Position of its edge in the JobGraph.
    edge: int
    #: Subtask of the producer.
    producer: int
    watermark: int
    #: Elements that wait in it.
    queued: int
    #: Its stream waits for another, which is behind by more than the operator's drift.
    held: bool


class TaskTimeReport(Message, frozen=True, kw_only=True):
    """Event time in one task."""

    attempt_id: ExecutionAttemptID
    now_ms: int
    #: In the order of the chain.
    operators: tuple[OperatorTimeReport, ...]
    #: None = all channels are idle or have ended, or the head is a source.
    slowest: ChannelTimeReport | None
    #: The watermark of all inputs together.
    input_watermark: int
    #: Timers that this watermark has made due are firing.
    fires_timers: bool
    #: The outputs lack credit, or an operator takes no rows.
    blocked: bool
    #: How long the present slice of work has taken so far, in ms; 0 = none is under way.
    slice_ms: int
    #: The barriers of a checkpoint have come on some channels, and the others are waited for.
    aligns_barriers: bool = False


class HolderReason(Enum):
    """Why event time does not go on at the one who holds it back."""

    NO_WATERMARKS = "no watermarks made"
    NO_ROWS_YET = "no rows yet"
    NO_TIMESTAMPS = "no timestamps"
    NO_ROWS_SINCE = "no rows since"
    NO_IDLENESS_SET = "no idleness set"
    GENERATOR_SAID_NOTHING = "generator said nothing"
    OLD_ROWS = "old rows"
    NO_SPLITS = "no splits"
    PAUSED_BY_ALIGNMENT = "paused by alignment"
    TIMERS_UNDER_WAY = "timers under way"
    RESULTS_AWAITED = "results awaited"
    SLOW_SLICE = "slow slice under way"
    NO_CREDIT = "no credit"
    WAITS_FOR_BARRIERS = "waits for barriers"
    INPUT_NOT_TAKEN = "input not taken yet"
    ALL_IDLE = "all inputs idle"
    NOT_RUNNING = "not running"
    NO_ANSWER = "no answer"


class EventTimeHolder(Message, frozen=True, kw_only=True):
    """Who holds event time back, why, and what to do."""

    operator: str
    #: From 0.
    subtask: int
    #: "" = no split: the holder is an operator.
    split_id: str
    watermark: int
    last_timestamp: int | None
    #: ms since that row ran; None = there was no row, or it is not known.
    age_ms: int | None
    idle: bool
    reason: HolderReason
    #: What holds event time back, and what to do about it: a sentence each.
    explanation: str
    remedy: str
    #: Names of the operators from the end whose event time waits up to the holder.
    path: tuple[str, ...]


class OperatorEventTime(Message, frozen=True, kw_only=True):
    """Event time behind one operator of the job: over its subtasks the least and the greatest watermark."""

    name: str
    least: int
    #: The subtask with the least watermark, from 0.
    subtask: int
    greatest: int
    #: All its subtasks are idle.
    idle: bool


class EventTimeDetails(Message, frozen=True, kw_only=True):
    """Event time of a job, operator by operator, and who holds it back."""

    job_id: JobID
    status: JobStatus
    now_ms: int
    operators: tuple[OperatorEventTime, ...] = ()
    #: One for each end of the job; ends with the same holder share one.
    holders: tuple[EventTimeHolder, ...] = ()
    #: Subtasks that have not answered.
    silent: tuple[str, ...] = ()
