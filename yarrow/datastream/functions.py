"""The functions users write: what they subclass, and the contexts they are handed.

Interfaces alone. One instance serves one subtask, is called only by the thread that owns the task (an
AsyncFunction: by its event loop), and must pickle before `open`. Functions that may emit several results
return an iterable or are generators; process functions send to a side output with `yield tag, value`. Times
are milliseconds since the epoch in UTC. Nothing here executes anything.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from yarrow.common.accumulators import Accumulator
from yarrow.common.job_id import JobID
from yarrow.common.metrics import MetricGroup
from yarrow.datastream.async_retry import AsyncFunctionDescriptor, AsyncRetryPredicate, AsyncRetryStrategy
from yarrow.datastream.time_domain import TimeDomain
from yarrow.datastream.timerservice import TimerService

if TYPE_CHECKING:
    from yarrow.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        BroadcastState,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        OperatorStateStore,
        ReadOnlyBroadcastState,
        ReducingState,
        ReducingStateDescriptor,
        State,
        StateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )
    from yarrow.datastream.window import Window

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointListener",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "KeySelector",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "ParallelSourceFunction",
    "Partitioner",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
    "WindowFunction",
]

IN = TypeVar("IN")
IN1 = TypeVar("IN1")
IN2 = TypeVar("IN2")
OUT = TypeVar("OUT")
KEY = TypeVar("KEY")
ACC = TypeVar("ACC")
T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W", bound="Window")
# The contexts nested in window functions need a variable of their own.
WINDOW = TypeVar("WINDOW", bound="Window")
T_contra = TypeVar("T_contra", contravariant=True)


class KeyedStateStore(ABC):
    """Gives access to keyed state: each handle reads and writes the value of the current key.

    The same name with another kind or type of state is refused, naming both.
    """

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor[T]) -> ValueState[T]:
        """Return the handle of a single value."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor[T]) -> ListState[T]:
        """Return the handle of a list."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor[K, V]) -> MapState[K, V]:
        """Return the handle of a map."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor[T]) -> ReducingState[T]:
        """Return the handle of a value that what is added is reduced into."""

    @abstractmethod
    def get_aggregating_state(
        self, state_descriptor: AggregatingStateDescriptor[IN, ACC, OUT]
    ) -> AggregatingState[IN, OUT]:
        """Return the handle of an aggregate."""


class RuntimeContext(KeyedStateStore):
    """What a function can learn about the task it runs in, its state, metrics and accumulators."""

    @abstractmethod
    def get_job_id(self) -> JobID:
        """Return the id of the job."""

    @abstractmethod
    def get_job_name(self) -> str:
        """Return the name of the job."""

    @abstractmethod
    def get_task_name(self) -> str:
        """Return the name of the task."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """Return the max parallelism, which is the number of key groups."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """Return the parallelism of the task."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """Return the place of this subtask, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """Return how often this subtask was started before; 0 at first."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """Return the task's name with `(place from 1/parallelism)#attempt` after it."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """Return a global job parameter, or the default."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """Return the metric group of the operator."""

    @abstractmethod
    def add_accumulator(self, name: str, accumulator: Accumulator[Any, Any]) -> None:
        """Add an accumulator. Raises ValueError when the subtask has one of this name."""

    @abstractmethod
    def get_accumulator(self, name: str) -> Accumulator[Any, Any]:
        """Return an accumulator that this subtask added. Raises KeyError when it added none of this name."""


class Function(ABC):  # noqa: B024 - both methods are optional, subclasses add the abstract ones
    """The base of all user functions."""

    def open(self, runtime_context: RuntimeContext) -> None:  # noqa: B027
        """Prepare; called once before the first record of each attempt."""

    def close(self) -> None:  # noqa: B027
        """Let go of what `open` took; called once at the end of each attempt, also after a failure."""


class MapFunction(Function, Generic[IN, OUT]):
    """One result for each record."""

    @abstractmethod
    def map(self, value: IN) -> OUT:
        """Return the result of a record."""


class CoMapFunction(Function, Generic[IN1, IN2, OUT]):
    """One result for each record of two connected streams."""

    @abstractmethod
    def map1(self, value: IN1) -> OUT:
        """Return the result of a record of the first stream."""

    @abstractmethod
    def map2(self, value: IN2) -> OUT:
        """Return the result of a record of the second stream."""


class FlatMapFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record."""

    @abstractmethod
    def flat_map(self, value: IN) -> Iterable[OUT] | None:
        """Return or yield the results of a record; None is no result."""


class CoFlatMapFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two connected streams."""

    @abstractmethod
    def flat_map1(self, value: IN1) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def flat_map2(self, value: IN2) -> Iterable[OUT] | None:
        """Return or yield the results of a record of the second stream; None is no result."""


class ReduceFunction(Function, Generic[T]):
    """Combines two values into one of the same type; must be associative."""

    @abstractmethod
    def reduce(self, value1: T, value2: T) -> T:
        """Return the combination of the value so far and a new one."""


class AggregateFunction(Function, Generic[IN, ACC, OUT]):
    """Adds values to an accumulator and makes a result of it."""

    @abstractmethod
    def create_accumulator(self) -> ACC:
        """Return an accumulator that nothing was added to."""

    @abstractmethod
    def add(self, value: IN, accumulator: ACC) -> ACC:
        """Return the accumulator with a value added; the given one may be changed and returned."""

    @abstractmethod
    def get_result(self, accumulator: ACC) -> OUT:
        """Return the result; the accumulator must stay as it is."""

    @abstractmethod
    def merge(self, acc_a: ACC, acc_b: ACC) -> ACC:
        """Return the accumulator of both; called only where windows merge."""


class KeySelector(Function, Generic[IN, KEY]):
    """Gives each record its key; equal records must get equal keys, on every machine."""

    @abstractmethod
    def get_key(self, value: IN) -> KEY:
        """Return the key of a record."""


class NullByteKeySelector(KeySelector[Any, int]):
    """The same key for every record, by which a stream without keys is processed by keyed operators."""

    def get_key(self, value: Any) -> int:
        return 0


class FilterFunction(Function, Generic[IN]):
    """Keeps some records."""

    @abstractmethod
    def filter(self, value: IN) -> bool:
        """Whether the record is kept."""


class Partitioner(Function, Generic[KEY]):
    """Chooses the subtask of each record by its key."""

    @abstractmethod
    def partition(self, key: KEY, num_partitions: int) -> int:
        """Return a place from 0 to `num_partitions` - 1; anything else fails the job, naming the key."""


class SourceFunction(Function, Generic[T]):
    """A source that runs a loop of its own, in a thread of its own, with parallelism 1."""

    class SourceContext(Protocol[T_contra]):
        """Where a source puts what it reads."""

        def collect(self, element: T_contra) -> None:
            """Emit a record without timestamp; waits while the stream is held back."""

        def collect_with_timestamp(self, element: T_contra, timestamp: int) -> None:
            """Emit a record with its event time; waits while the stream is held back."""

        def emit_watermark(self, timestamp: int) -> None:
            """Say that no record before or at this time will follow."""

        def mark_as_temporarily_idle(self) -> None:
            """Say that nothing will come for a while; the next record ends this."""

        def get_checkpoint_lock(self) -> AbstractContextManager[Any]:
            """Return the lock to hold while emitting a record and changing the position it belongs to."""

        def close(self) -> None:
            """End the output; called by the runtime."""

    @abstractmethod
    def run(self, ctx: SourceContext[T]) -> None:
        """Emit records until there are none or `cancel` was called; returning ends the stream."""

    @abstractmethod
    def cancel(self) -> None:
        """Make `run` return soon; called by another thread, once or more."""


class ParallelSourceFunction(SourceFunction[T]):
    """A SourceFunction that runs with any parallelism."""


class SinkFunction(Function, Generic[IN]):
    """Takes records out of the job."""

    class Context(Protocol):
        """What a sink can learn about a record."""

        def current_processing_time(self) -> int:
            """Return the machine's time."""

        def current_watermark(self) -> int:
            """Return the event time reached."""

        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    @abstractmethod
    def invoke(self, value: IN, context: Context) -> None:
        """Take a record. After a failure, records since the last checkpoint come again."""

    def finish(self) -> None:
        """Write what is kept back; called once when the input has ended."""


class ProcessFunction(Function, Generic[IN, OUT]):
    """Any number of results for each record, with time and side outputs."""

    class Context(ABC):
        """What is known while a record is processed."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks; timers need a keyed stream."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> Iterable[Any] | None:
        """Return or yield results and `(tag, value)` pairs for side outputs; None is no result."""


class KeyedProcessFunction(Function, Generic[KEY, IN, OUT]):
    """Any number of results for each record of a keyed stream, with state, timers and side outputs."""

    class Context(ABC):
        """What is known while a record is processed."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the timers of the key."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    class OnTimerContext(Context):
        """What is known while a timer fires; its timestamp is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element(self, value: IN, ctx: Context) -> Iterable[Any] | None:
        """Return or yield results and `(tag, value)` pairs for side outputs; None is no result."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield what a timer of the key brings forth; by default nothing."""
        return None


class CoProcessFunction(Function, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of two connected streams, with time and side outputs."""

    class Context(ABC):
        """What is known while a record is processed."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks; timers need keyed streams."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the second stream; None is no result."""


class KeyedCoProcessFunction(Function, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of two connected keyed streams, which share state and timers."""

    class Context(ABC):
        """What is known while a record is processed."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the timers of the key."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

    class OnTimerContext(Context):
        """What is known while a timer fires; its timestamp is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element1(self, value: IN1, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the first stream; None is no result."""

    @abstractmethod
    def process_element2(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a record of the second stream; None is no result."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield what a timer of the key brings forth; by default nothing."""
        return None


class WindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Any number of results for each window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""


class AllWindowFunction(Function, Generic[IN, OUT, W]):
    """Any number of results for each window of a stream without keys."""

    @abstractmethod
    def apply(self, window: W, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""


class _WindowContext(ABC, Generic[WINDOW]):
    """What is known while a window fires."""

    @abstractmethod
    def window(self) -> WINDOW:
        """Return the window."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the state of this key and window; what is put there is removed in `clear`."""

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the state of this key in all windows."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W]):
    """Any number of results for each window of a key, with state, time and side outputs."""

    class Context(_WindowContext[WINDOW]):
        """What is known while a window fires."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time reached."""

    @abstractmethod
    def process(self, key: KEY, context: Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""

    def clear(self, context: Context[W]) -> None:
        """Remove the window's own state; called once when the window is purged for good."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W]):
    """Any number of results for each window of a stream without keys, with state and side outputs."""

    class Context(_WindowContext[WINDOW]):
        """What is known while a window fires."""

    @abstractmethod
    def process(self, context: Context[W], elements: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results of a window that fires."""

    def clear(self, context: Context[W]) -> None:
        """Remove the window's own state; called once when the window is purged for good."""


class BaseBroadcastProcessFunction(Function):
    """What the functions over a stream and a broadcast stream have in common."""

    class BaseContext(ABC):
        """What is known while a record is processed."""

        @abstractmethod
        def timestamp(self) -> int | None:
            """Return the event time of the record, or None."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the machine's time."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the event time reached."""

    class Context(BaseContext):
        """What is known while a broadcast record is processed."""

        @abstractmethod
        def get_broadcast_state(self, state_descriptor: MapStateDescriptor[K, V]) -> BroadcastState[K, V]:
            """Return broadcast state for reading and writing.

            Each subtask must write the same: what is written may depend on broadcast records alone.
            """

    class ReadOnlyContext(BaseContext):
        """What is known while a record of the other stream is processed."""

        @abstractmethod
        def get_broadcast_state(
            self, state_descriptor: MapStateDescriptor[K, V]
        ) -> ReadOnlyBroadcastState[K, V]:
            """Return broadcast state for reading."""


class BroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[IN1, IN2, OUT]):
    """Any number of results for each record of a stream without keys and of a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What is known while a broadcast record is processed."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What is known while a record of the other stream is processed."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return or yield the results of a record of the stream that is not broadcast."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a broadcast record, which every subtask sees."""


class KeyedBroadcastProcessFunction(BaseBroadcastProcessFunction, Generic[KEY, IN1, IN2, OUT]):
    """Any number of results for each record of a keyed stream and of a broadcast stream."""

    class Context(BaseBroadcastProcessFunction.Context):
        """What is known while a broadcast record is processed."""

        @abstractmethod
        def apply_to_keyed_state(
            self, state_descriptor: StateDescriptor, function: Callable[[Any, State], None]
        ) -> None:
            """Call `function(key, state)` for every key of the subtask that has this state, in any order."""

    class ReadOnlyContext(BaseBroadcastProcessFunction.ReadOnlyContext):
        """What is known while a record of the keyed stream is processed."""

        @abstractmethod
        def timer_service(self) -> TimerService:
            """Return the clocks and the timers of the key."""

        @abstractmethod
        def get_current_key(self) -> Any:
            """Return the key of the record."""

    class OnTimerContext(ReadOnlyContext):
        """What is known while a timer fires; its timestamp is the timer's."""

        @abstractmethod
        def time_domain(self) -> TimeDomain:
            """Return the clock of the timer."""

    @abstractmethod
    def process_element(self, value: IN1, ctx: ReadOnlyContext) -> Iterable[Any] | None:
        """Return or yield the results of a record of the keyed stream."""

    @abstractmethod
    def process_broadcast_element(self, value: IN2, ctx: Context) -> Iterable[Any] | None:
        """Return or yield the results of a broadcast record, which every subtask sees."""

    def on_timer(self, timestamp: int, ctx: OnTimerContext) -> Iterable[Any] | None:
        """Return or yield what a timer of the key brings forth; by default nothing."""
        return None


class AsyncFunction(Function, Generic[IN, OUT]):
    """Waits for something outside for each record, for many records at once."""

    @abstractmethod
    def async_invoke(self, value: IN) -> Awaitable[list[OUT]]:
        """Return the results of a record;

        written as `async def`, it runs on the event loop of the subtask.
        """

    def timeout(self, value: IN) -> list[OUT]:
        """Return the results of a record whose time is over;

        by default this fails the job with TimeoutError.
        """
        raise TimeoutError(f"async function {type(self).__name__} gave no result in time for {value!r}")


class FunctionInitializationContext(ABC):
    """What a CheckpointedFunction gets before it is opened: its state, empty or restored."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Return the access to state that belongs to the operator."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """Return the access to state that belongs to the key at hand; only on a keyed stream."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether the job began from a checkpoint or savepoint."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """Return the id of that checkpoint, or None."""


class FunctionSnapshotContext(ABC):
    """What a CheckpointedFunction gets when a checkpoint is taken."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """Return the id of the checkpoint, which grows from one checkpoint to the next."""


class CheckpointedFunction(ABC):
    """To be mixed into a function that keeps state of its own and puts it into operator state at a checkpoint."""

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Register state and take over what was restored; called once, before `open`."""

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Put what must not be lost into the state. No record is processed meanwhile: it must be short."""


class CheckpointListener(ABC):
    """To be mixed into a function that wants to know what became of a checkpoint."""

    @abstractmethod
    def notify_checkpoint_complete(self, checkpoint_id: int) -> None:
        """The checkpoint is complete and covers all earlier ones, whose notifications may have been lost."""

    def notify_checkpoint_aborted(self, checkpoint_id: int) -> None:  # noqa: B027 - optional
        """The checkpoint will never be complete; nothing needs to be done unless it was prepared for."""
