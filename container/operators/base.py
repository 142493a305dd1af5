"""Operator: the base of all operators: their life cycle, and their part in a chain.

Owner: the task thread that runs the chain. Life cycle: constructed from a spec -> setup(context) -> open() -> records
-> finish() at the end of input -> close() in every case. A row operator writes its part of the fused loop with
`generate`; a columnar one is called with whole batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self

import msgspec

from yarrow.common.accumulators import Accumulator
from yarrow.common.type_information import declared_type as declared_type
from yarrow.common.values.rate_limit import RateLimit
from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.metrics.metric_registry import MetricRegistry, OperatorMetricGroup, metric_scope
from yarrow.container.operators.loop_ends import LoopAccess, LoopMarkerSender, NoLoops
from yarrow.container.state.backend import KeyedBackendContext, KeyedStateBackend
from yarrow.container.state.backend_builder import keyed_state_backend
from yarrow.container.state.operator_state import OperatorStateBackend
from yarrow.container.state.timers import OperatorTimerService
from yarrow.datastream.functions.iteration_functions import IterationRuntimeContext
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.checkpoint_options import SnapshotKind
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP, ArrowBatch
from yarrow.runtime.data.key_groups import KeyGroupRange, key_group_range_for_operator_index
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import TypeSpec
from yarrow.runtime.snapshot.handles import OperatorStateMode, OperatorSubtaskState, StateHandle
from yarrow.runtime.snapshot.key_types import key_type_of

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords

#: Writes the code that forwards a row: (value variable, timestamp variable or None).
Emit = Callable[[str, str | None], None]
#: Results of a watermark or of timers: rows with their timestamps. If `emits_batches` they are record batches, if
#: `emits_lists` lists of rows, each with the list of their timestamps.
TimeResults = Iterable[tuple[Any, int | None]] | Iterable[tuple[list[Any], list[int]]] | Iterable[ArrowBatch]


class CollectMessage(NamedTuple):
    """A message with rows of a collect operator for the client; see CollectRows."""

    collect_id: str
    sequence: int
    payload: bytes
    row_count: int
    last: bool
    continued: bool
    stream: str
    first: int
    restored: int
    confirmed: int
    writers: tuple[tuple[int, str], ...] = ()
    awaits: bool = False


class HistoryTime(NamedTuple):
    """Event time at the end of a stream's history, where the stream goes on."""

    #: The watermark; None = nothing holds it back here.
    watermark: int | None
    #: Milliseconds by which a watermark stays behind a record.
    lag: int = 0

    @staticmethod
    def least(times: Iterable[HistoryTime]) -> HistoryTime:
        """The time behind several streams together."""
        found = list(times)
        known = [time.watermark for time in found if time.watermark is not None]
        return HistoryTime(min(known, default=None), max((time.lag for time in found), default=0))


class RestoredState(msgspec.Struct, frozen=True):
    """The restored state with which a subtask begins."""

    #: Its checkpoint; -1 = none.
    checkpoint_id: int
    operators: Mapping[OperatorID, OperatorSubtaskState]
    #: Returns the verified bytes of a handle of `operators`. Raises SnapshotError with file and operator.
    read: Callable[[StateHandle], bytes]
    #: True if pickled values in them may be read.
    trusted: bool = True

    def of(self, operator_id: OperatorID) -> OperatorSubtaskState:
        """The state of one operator; empty if it has none."""
        return self.operators.get(operator_id) or OperatorSubtaskState()

    @property
    def is_restored(self) -> bool:
        """True if the job continues from a checkpoint, with or without state for this task."""
        return self.checkpoint_id >= 0


def _nothing_to_read(handle: StateHandle) -> bytes:
    raise LookupError(f"the state {handle} was not restored")


NOTHING_RESTORED = RestoredState(-1, {}, _nothing_to_read)


class ReaderProgress(NamedTuple):
    """The event time in ms that a reader of aligned sources has reached, and the rule by which it waits.

    WatermarkReport says what the fields mean.
    """

    group: str
    reached: int | None
    max_drift_ms: int
    interval_ms: int
    needs_bound: bool


@dataclass(frozen=True, slots=True)
class TaskEnvironment:
    """The environment of a task: job, task, metrics, clock, and hooks to the worker."""

    job_id: JobID
    job_name: str
    attempt_id: ExecutionAttemptID
    task_name: str
    subtask: int
    parallelism: int
    max_parallelism: int
    attempt_number: int
    configuration: Mapping[str, str]
    clock: Clock
    metrics: MetricRegistry
    accumulators: dict[str, Accumulator[Any, Any]]
    object_reuse: bool
    #: Makes the thread look at the task soon. Any thread.
    wake: Callable[[], None]
    #: Runs an action on the task's thread between slices. Any thread.
    post: Callable[[Callable[[], None]], None]
    #: Writes whole text lines to the TaskExecutor's .out file.
    write_output: Callable[[str], None]
    #: Sends (operator id, target subtask or -1 for the coordinator, source subtask, payload) to the
    #: JobMaster.
    send_operator_event: Callable[[str, int, int, bytes], None]
    #: Sends a message of a collect operator to the JobMaster.
    push_collected: Callable[[CollectMessage], None]
    #: The worker's settings under the job's.
    settings: Settings
    #: A folder of this task for files that end with it; made on demand.
    local_directory: str
    #: The task's restored state, fetched and verified before its operators are set up.
    restored: RestoredState = NOTHING_RESTORED
    #: Key that seals pickled rows of execute_and_collect: `result_rows.result_key`.
    result_key: bytes = field(default=b"", repr=False)
    #: The latest savepoint of the job when the task was deployed; -1 = none.
    latest_savepoint_id: int = -1
    #: The input ends and comes key group by key group: results of a key leave at its end, and watermark
    #: generators are not asked.
    bounded: bool = False
    #: The superstep in which the task runs; None = the task is no part of an iteration.
    superstep: IterationRuntimeContext | None = None
    #: Paths of cached files by name.
    cached_files: Mapping[str, str] = field(default_factory=dict)
    #: The feedback channels of the loops to which the task belongs.
    loops: LoopAccess = field(default_factory=NoLoops)
    #: Sends the event time that a reader of aligned sources has reached to the JobMaster, whose answer is
    #: `SourceHead.take_bound`; None = nobody compares sources.
    report_watermark: Callable[[ReaderProgress], None] | None = None


class OperatorContext(msgspec.Struct, frozen=True):
    """The context that an operator gets at setup."""

    environment: TaskEnvironment
    descriptor: OperatorDescriptor
    state: KeyedStateBackend
    metric_group: OperatorMetricGroup
    operator_state: OperatorStateBackend
    #: Id of the restored checkpoint; None = the job begins anew.
    restored_checkpoint_id: int | None = None

    @staticmethod
    def of(
        environment: TaskEnvironment,
        descriptor: OperatorDescriptor,
        key_groups: KeyGroupRange | None = None,
    ) -> OperatorContext:
        """The context of one operator of the task; `key_groups` replaces those of its subtask."""
        restored = environment.restored
        metrics = OperatorMetricGroup(environment.metrics, (metric_scope(descriptor.name),))
        keyed = KeyedBackendContext(
            operator_name=descriptor.name,
            operator_id=descriptor.id,
            job_id=environment.job_id,
            subtask=environment.subtask,
            max_parallelism=environment.max_parallelism,
            key_groups=key_groups
            or key_group_range_for_operator_index(
                environment.max_parallelism, environment.parallelism, environment.subtask
            ),
            object_reuse=environment.object_reuse,
            clock=environment.clock,
            settings=environment.settings,
            local_directory=environment.local_directory,
            metrics=metrics,
            post=environment.post,
            restored=restored.of(descriptor.id).keyed,
            restored_checkpoint_id=restored.checkpoint_id,
            read=restored.read,
            trusted=restored.trusted,
            key_type=key_type_of(descriptor.state_key_type),
            key_columns=descriptor.state_key_columns,
        )
        return OperatorContext(
            environment,
            descriptor,
            keyed_state_backend(keyed),
            metrics,
            OperatorStateBackend(
                descriptor.name,
                restored.of(descriptor.id).operator,
                restored.read,
                trusted=restored.trusted,
            ),
            restored.checkpoint_id if restored.is_restored else None,
        )


def input_type_of(descriptor: OperatorDescriptor) -> TypeSpec:
    """The declared type of an operator's first input; None = undeclared, or there is no input."""
    return descriptor.input_types[0] if descriptor.input_types else None


class TimeHolder(NamedTuple):
    """The producer that holds back the event time of a task."""

    #: The input of the head operator.
    input: int
    #: The name of the producing task; empty if it is not known.
    producer: str
    #: Its last watermark.
    watermark: int


def _no_holder() -> TimeHolder | None:
    return None


class TimeBehind(Protocol):
    """Sends watermarks and idleness on behind an operator."""

    def forward(self, watermark: int) -> None:
        """Forwards a watermark, and keeps idleness."""
        ...

    def set_idle(self, idle: bool) -> None:
        """Forwards a change of idleness."""
        ...


class Operator(ABC):
    """Base of all operators."""

    #: True if each row in gives exactly one row out: the rows behind it need not be counted.
    one_to_one = False
    #: True if the operator makes watermarks, by `watermarks_to`: upstream watermarks and idleness end there.
    makes_watermarks = False
    #: True if an emitted row may be an object in the operator's state: chained operators must get copies.
    emits_state = False
    #: True if each emitted row is a new object that nobody keeps or changes. Known when the operator is open.
    emits_new_rows = False
    #: True if each emitted row is a Row with names of its own. Known when the operator is open.
    emits_named_rows = False
    #: True if nobody else has the rows that the operator gets; the chain sets it before it writes code.
    gets_new_rows = False
    #: True if rows leave as the same objects: the requirements of the declared type are already fulfilled.
    passes_rows = False
    #: True if all rows leave with timestamps; known after `setup`.
    stamps_rows = False
    #: True for row operators: the fused loop may pass rows to them.
    takes_rows = False
    #: True for a BatchTarget: the chain may pass record batches to it.
    takes_batches = False
    #: True for a BatchEmitter: watermarks and timers result in record batches instead of rows.
    emits_batches = False
    #: True if watermarks and timers result in lists of rows, none of which has a tag. Nobody changes a row between two.
    emits_lists = False
    #: True if the fused loop only collects rows: `end_of_chunk` takes them, and counts them in `records_in`.
    takes_chunks = False
    #: True if a row may be `(OutputTag, value)`: the value then goes to that side output.
    emits_tagged = False
    #: True if rows leave as record batches, by `deliver`.
    delivers_batches = False
    #: True if record batches leave as rows: `to_rows` makes them.
    converts_to_rows = False
    #: True if the operator prints text by `write_text`, which the runner of the task may replace.
    prints_text = False
    write_text: Callable[[str], None]
    #: True if watermarks and idleness leave behind the rows that came before them: the operator sends them on
    #: by `time_behind`.
    holds_time = False
    #: Event time behind an operator that holds time; the chain sets it.
    time_behind: TimeBehind
    #: Says who holds back event time in front of the head of a chain; the task sets it.
    time_holder: Callable[[], TimeHolder | None] = staticmethod(_no_holder)
    #: True if `upkeep` may have work to do.
    has_upkeep = False
    #: True if state outlives the end of the input: the operator implements `resume_finished`.
    keeps_state_behind_end = False
    #: Lists of operator state that the engine keeps for the user's source or sink, by name.
    engine_lists: ClassVar[Mapping[str, OperatorStateMode]] = {}
    #: True if the operator emits rows that it has held back, by `emit_held`, when it wants. It hears of the end of each
    #: chunk.
    holds_rows = False
    #: Emits such rows with their timestamps on the main output, also within a chunk; the chain sets it.
    emit_held: Callable[[list[Any], list[int]], None]
    #: True for the head of a loop: it emits rows that have left it before.
    emits_again = False
    #: Emits rows, perhaps with timestamps, on a side output or, for None, on the main output; the chain sets it.
    emit_again: Callable[[str | None, list[Any], list[int | None] | None], None]
    #: Sends the markers of its loop; the task sets it.
    markers: LoopMarkerSender
    #: Call it when `has_gathered` may have become true; the task sets it.
    tell_gathered: Callable[[], None]
    #: True for the tail of a loop: the operator is a LoopEnd.
    is_loop_end = False
    #: True from `setup` on, when `context` exists.
    is_set_up = False
    #: The records that the operator has left out; None = such a record fails the job.
    failed: FailedRecords | None = None
    #: Takes each batch of an operator that delivers batches; the chain sets it.
    deliver: Callable[[ArrowBatch], None]

    def __init__(self, name: str) -> None:
        self.name = name
        #: Received rows, if the chain cannot derive the count from a neighbour; see `counts_input`.
        self.records_in = 0
        #: Number of fired timers.
        self.fired_timers = 0
        self.context: OperatorContext

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        """Makes the operator of a descriptor, by name and spec; subclasses with other constructors override this."""
        construct: Any = cls
        made: Self = construct(descriptor.name, descriptor.spec)
        return made

    def setup(self, context: OperatorContext) -> None:
        """Sets the context."""
        self.context = context
        self.is_set_up = True
        if self.failed is not None:
            state = context.state
            clock = context.environment.clock
            self.failed.set_up(lambda: state.current_key, context.metric_group, clock)

    def leave_out_by(self, failed: FailedRecords) -> None:
        """Leave out the records at which the operator fails; called once, before `setup`."""
        failed.of_one_to_one, self.one_to_one = self.one_to_one, False
        self.failed = failed

    def open(self) -> None:
        """Opens user functions; called before the first record."""
        return None

    def resume_finished(self) -> None:
        """Replaces `open` for a task that had ended before the restored checkpoint and has state in it.

        The operator finishes its prepared external work; `is_drained` says when that is done. No row comes,
        and none is emitted.
        """
        return None

    def finish(self) -> None:
        """Finishes the operator after the end of its input: it writes everything that it holds back."""
        return None

    @property
    def is_drained(self) -> bool:
        """False while the operator waits for a receiver outside to take its last output."""
        return True

    @property
    def is_available(self) -> bool:
        """False while the operator cannot take rows: its task counts as back-pressured."""
        return True

    @property
    def room(self) -> int | None:
        """Most rows that the operator takes now, as the head of its chain; None = any number."""
        return None

    @property
    def permitted_rows(self) -> int | None:
        """Most rows that the rate limit of a sink lets it take now, wherever it stands; None = it has no limit."""
        return None

    def take_share(self, share: RateLimit) -> None:
        """Takes the subtask's share of the rate limit of a source or sink."""
        return None

    @property
    def awaits_results(self) -> bool:
        """True while the end of the input has to wait, because results of former rows have not been emitted."""
        return False

    def await_end(self) -> None:
        """Takes note that no further input comes, while the operator awaits results."""
        return None

    def await_results(self, seconds: float) -> None:
        """Waits, at most so long, until results can be emitted; for callers that have nothing else to do."""
        return None

    @property
    def only_awaits_client(self) -> bool:
        """True if the operator only waits for the client of execute_and_collect to fetch rows."""
        return False

    def await_client(self) -> None:
        """Tells the master, once, that all undrained operators of the task only wait for the client."""
        return None

    def end_of_chunk(self) -> None:
        """Processes the rows that the loop has collected; called after each run of the loop."""
        return None

    def compile_own_loop(self) -> CompiledCode | None:
        """Makes the loop that runs rows outside the code of the chain; None = the operator has none.

        `open` makes it. Before that it serves people who read the code.
        """
        return None

    def close(self) -> None:
        """Closes user functions; called once in every case."""
        return None

    # Checkpoints. The chain snapshots keyed and operator state of the context after `snapshot_state`.

    def prepare_snapshot(self, checkpoint_id: int) -> None:
        """Emits or writes rows that are held back, before the barrier is sent; called in chain order."""
        return None

    def stand_still(self, checkpoint_id: int, kind: SnapshotKind) -> None:
        """Called before `snapshot_state` of a snapshot that stops all tasks.

        Emit nothing afterwards: the task ends when it is complete.
        """
        return None

    def snapshot_state(self, checkpoint_id: int) -> None:
        """Puts everything that is kept outside of the context's state into that state, at the cut.

        Must be short.
        """
        return None

    @property
    def gathers_behind_cut(self) -> bool:
        """True if the state of a head is frozen when `has_gathered` says so, not at the cut."""
        return False

    def has_gathered(self, checkpoint_id: int) -> bool:
        """Whether all that belongs to the state of a cut has come."""
        return True

    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete; so are all earlier ones, whose notifications may have been lost."""
        return None

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:
        """The checkpoint will never be complete."""
        return None

    def on_watermark(self, timestamp: int) -> TimeResults:
        """Takes a watermark higher than all before; returns the results, except those of timers.

        Behind the end of keys of bounded input it is the minimum again: see `end_keys`.
        """
        return ()

    def on_idle(self, idle: bool) -> TimeResults:
        """Takes a change of idleness of an operator that holds time; returns results like `on_watermark`."""
        return ()

    def fire_event_timers(self, deadline: float) -> TimeResults:
        """Results of timers at or below the watermark; like `fire_timers`."""
        return ()

    @property
    def event_timers_due(self) -> bool:
        """True while `fire_event_timers` has left some timers: the watermark waits for them."""
        return False

    def forwarded_watermark(self, timestamp: int) -> int | None:
        """The watermark to forward for a received one; None = none."""
        return timestamp

    # Upkeep: work that emits nothing. It needs no credit and continues after the end of the input, unlike
    # timers.

    def seconds_until_upkeep(self) -> float | None:
        """Seconds until `upkeep` has work to do; <= 0 = now, None = none."""
        return None

    def upkeep(self) -> None:
        """Does due work: retries a commit, closes a file."""
        return None

    def calls_in_flight(self) -> Sequence[Any]:
        """What calls beside the task's thread have got and not answered, the oldest first. Any thread."""
        return ()

    #: True if times of rows do not count: the rows of the first input come before those of the second one.
    takes_inputs_in_turn = False

    # The history of a stream: records of a key come together, and state is kept. See docs/design/0027.

    @property
    def timer_service(self) -> OperatorTimerService | None:
        """The timers of keys, if the operator has some: whoever runs one key at a time moves its time."""
        return None

    @property
    def takes_keys_ahead(self) -> bool:
        """True if the operator may take the keys of all rows of a call before the first row runs."""
        state = self.context.state
        return isinstance(state, KeyedStateBackend) and state.wants_keys

    def end_history(self, before: HistoryTime) -> HistoryTime:
        """Event time behind the operator when all records of history have passed; `before` is that before it.

        An operator that makes watermarks sends its last one.
        """
        return before

    # Bounded input (`TaskEnvironment.bounded`): the rows of a key come together, and no watermark between them.

    #: True if the rows of several keys may mix before `end_keys`. Then they come in order of time alone.
    mixes_keys = False
    #: True if all rows of a subtask come in order of time, also where no key distributes them.
    wants_time_order = False

    def end_keys(self) -> TimeResults:
        """Ends all keys that have come: returns what the operator holds back for them, and begins time anew.

        The watermark rises to its maximum. Event-time timers fire, then processing-time timers. The watermark
        goes back to its minimum. The caller empties the keyed state afterwards.
        """
        yield from self.on_watermark(MAX_TIMESTAMP)
        yield from self.fire_event_timers(inf)
        yield from self.fire_timers(MAX_TIMESTAMP, inf)
        yield from self.on_watermark(MIN_TIMESTAMP)

    def take_committables(self) -> list[Any]:
        """What the operator has prepared for a commit at the end of bounded input; it is the caller's from now on."""
        return []

    def next_timer(self) -> int | None:
        """Epoch ms of the earliest processing-time timer; None = none."""
        return None

    def fire_timers(self, now: int, deadline: float) -> TimeResults:
        """Results of due timers; among rows, side outputs as `(OutputTag, value)` values.

        After `deadline` (perf_counter) no further timer fires: the rest waits for the next slice.
        """
        return ()


class RowOperator(Operator):
    """An operator that is fused into the row loop."""

    takes_rows = True

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        """Writes the code for one row at the present indentation of `code`."""
        raise TypeError(f"operator '{self.name}' cannot be the target of rows")

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        """Writes the code for input `index` of a two-input operator."""
        self.generate(code, value, timestamp, emit)


class KeyReadingOperator(RowOperator):
    """A RowOperator that computes the key of a row; at the head of a chain its state may ask for keys in advance."""

    def generate(self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit) -> None:
        self.generate_at(code, value, timestamp, emit, is_head=False)

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        self.generate_at(code, value, timestamp, emit, is_head=True)

    @abstractmethod
    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        """Writes the code for one row; `is_head`: the rows come from a channel, not from another operator."""
