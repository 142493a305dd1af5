"""KeyedStream: a stream distributed by key, with the operators that keep something for each key.

Owner: the thread that builds the program. The key selector is pickled once and shared by the partition before
the operator and the operator itself, so that both see the same key.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Any

from yarrow.common.typeinfo import BasicTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation
from yarrow.datastream.data_stream import DataStream, OrderedStream
from yarrow.datastream.functions import (
    KeyedProcessFunction,
    KeySelector,
    ProcessFunction,
    ReduceFunction,
)
from yarrow.datastream.program.graph_builder import declared
from yarrow.datastream.program.user_functions import declares_blocking, is_rich, require_function
from yarrow.datastream.stream_distribution import KeyFunction
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.graph.operator_spec import (
    AggregateKind,
    AggregateOperator,
    PartitionerKind,
    PartitionerSpec,
    ProcessOperator,
    ReduceOperator,
)
from yarrow.runtime.graph.transformations import Transformation
from yarrow.runtime.graph.window_spec import KeyedEventTimeOrderOperator

if TYPE_CHECKING:
    from yarrow.datastream.keyed_joins import AsOfJoin, DelayedJoin, ImmediateJoin, IntervalJoin
    from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
    from yarrow.datastream.window import WindowAssigner
    from yarrow.datastream.windowed_stream import WindowedStream

__all__ = ["KeyedStream"]


class KeyedStream(DataStream):
    """The records of a stream, distributed by key. Made by `DataStream.key_by`."""

    class AccumulateType(Enum):
        """The running aggregate of a field that a method of this class makes."""

        MIN = 1
        MAX = 2
        MIN_BY = 3
        MAX_BY = 4
        SUM = 5

    def __init__(
        self,
        environment: StreamExecutionEnvironment,
        transformation: Transformation,
        key_selector: bytes,
        key_type: TypeInformation | None,
    ) -> None:
        super().__init__(environment, transformation)
        #: cloudpickle of the selector.
        self.key_selector = key_selector
        #: None = not declared. It stands beside the state in snapshots, and is compared when they are restored.
        self.key_type = key_type

    @classmethod
    def of(
        cls, stream: DataStream, key_selector: KeyFunction, key_type: TypeInformation | None
    ) -> KeyedStream:
        """Return `stream` distributed by the key that the selector gives each record."""
        require_function(key_selector, KeySelector, "key_by")
        environment = stream.get_execution_environment()
        builder = environment.graph_builder
        pickled = builder.pickle(key_selector, "key_by", "key selector")
        spec = PartitionerSpec(kind=PartitionerKind.KEY_GROUP, key_selector=pickled)
        partition = builder.partition(builder.as_rows(stream.transformation), spec)
        return cls(environment, partition, pickled, declared(key_type))

    def get_name(self) -> str:
        """Raise InvalidProgramError, as in PyFlink: a key is no operator, which could have a name."""
        return self.operator("get_name").name

    def reduce(
        self, func: Callable[[Any, Any], Any] | ReduceFunction[Any], *, commutes: bool = False
    ) -> DataStream:
        """Return the stream of each key's value so far, after each record: `func(value so far, record)`.

        `commutes` says that `func(a, b)` equals `func(b, a)`. Batch mode then folds records before it sends them,
        also where they bear a time. A stream takes no notice of it.
        """
        require_function(func, ReduceFunction, "reduce")
        name = "Keyed Reduce"
        spec = ReduceOperator(
            function=self._builder.pickle(func, name),
            key_selector=self.key_selector,
            commutes=commutes,
            is_rich=is_rich(func) or (not isinstance(func, ReduceFunction) and hasattr(func, "open")),
        )
        return self._one_input(name, spec, self.transformation.output_type, declares_blocking(func))

    def sum(self, position_to_sum: int | str = 0) -> DataStream:
        """Return the stream of each key's record with the field's sum so far."""
        return self._aggregate(AggregateKind.SUM, position_to_sum)

    def min(self, position_to_min: int | str = 0) -> DataStream:
        """Return the stream of each key's first record with the field's minimum so far."""
        return self._aggregate(AggregateKind.MIN, position_to_min)

    def max(self, position_to_max: int | str = 0) -> DataStream:
        """Return the stream of each key's first record with the field's maximum so far."""
        return self._aggregate(AggregateKind.MAX, position_to_max)

    def min_by(self, position_to_min_by: int | str = 0) -> DataStream:
        """Return the stream of each key's record that has the field's minimum so far."""
        return self._aggregate(AggregateKind.MIN_BY, position_to_min_by)

    def max_by(self, position_to_max_by: int | str = 0) -> DataStream:
        """Return the stream of each key's record that has the field's maximum so far."""
        return self._aggregate(AggregateKind.MAX_BY, position_to_max_by)

    def process(
        self,
        func: ProcessFunction[Any, Any] | KeyedProcessFunction[Any, Any, Any],
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Return the stream of the results of a KeyedProcessFunction, with state and timers."""
        require_function(func, KeyedProcessFunction, "process on a keyed stream", callables=False)
        name = "KeyedProcess"
        spec = ProcessOperator(function=self._builder.pickle(func, name), key_selector=self.key_selector)
        return self._one_input(name, spec, declared(output_type), declares_blocking(func))

    def in_event_time_order(self) -> OrderedStream:
        """Return the stream with the records of each key in order of event time, as `DataStream` says.

        Records of other keys in the same subtask are in the same order.
        """
        return OrderedStream.of(self, KeyedEventTimeOrderOperator(key_selector=self.key_selector))

    def window(self, window_assigner: WindowAssigner[Any, Any]) -> WindowedStream:
        """Return the stream cut into windows: records of a key that belong to one window come together."""
        from yarrow.datastream.windowed_stream import WindowedStream

        return WindowedStream(self, window_assigner)

    def count_window(self, size: int, slide: int = 0) -> WindowedStream:
        """Return the stream cut into windows of `size` records of a key, one starting every `slide` records.

        A slide of 0 is the size. Each window fires once, when it is full.
        """
        from yarrow.datastream.windowed_stream import count_windows

        return self.window(count_windows(size, slide))

    def interval_join(self, other: KeyedStream) -> IntervalJoin[DataStream]:
        """Begin a join with records of another keyed stream whose times are near: `between` gives the bounds."""
        from yarrow.datastream.keyed_joins import IntervalJoin

        self._require_keyed(other, "interval_join")
        return IntervalJoin(self, other, self._stream)

    def as_of_join(self, other: KeyedStream) -> AsOfJoin[DataStream]:
        """Begin a join of each record with one record of another keyed stream, that which holds at its time.

        `backward`, `forward` or `nearest` says which one that is.
        """
        from yarrow.datastream.keyed_joins import AsOfJoin

        self._require_keyed(other, "as_of_join")
        return AsOfJoin(self, other, self._stream)

    def delayed_join(self, other: KeyedStream) -> DelayedJoin[DataStream]:
        """Begin a join of records that wait: `after` says how long. Then all that wait for a key are joined."""
        from yarrow.datastream.keyed_joins import DelayedJoin

        self._require_keyed(other, "delayed_join")
        return DelayedJoin(self, other, self._stream)

    def immediate_join(self, other: KeyedStream) -> ImmediateJoin[DataStream]:
        """Begin a join whose records of this stream are kept, and meet each later record of the other stream."""
        from yarrow.datastream.keyed_joins import ImmediateJoin

        self._require_keyed(other, "immediate_join")
        return ImmediateJoin(self, other, self._stream)

    def _require_keyed(self, other: KeyedStream, call: str) -> None:
        if not isinstance(other, KeyedStream):
            raise TypeError(f"{call} takes a KeyedStream, not {type(other).__name__}: call key_by before it")
        self._same_program(other, call)

    def _key_selector_for(self, func: Any) -> bytes | None:
        return self.key_selector if is_rich(func) else None

    def _one_input(
        self, name: str, spec: Any, output_type: TypeInformation | None, blocking: bool = False
    ) -> DataStream:
        made = self._builder.one_input(
            self.transformation,
            name,
            spec,
            output_type=output_type,
            blocking=blocking,
            state_key_type=self.key_type,
        )
        return self._stream(made)

    def _partition(self, spec: PartitionerSpec, read: Transformation | None = None) -> DataStream:
        raise InvalidProgramError(
            f"A keyed stream is distributed by its key, which {spec.kind.value} would undo. Distribute the"
            " stream before key_by, or the output of an operator on the keyed stream."
        )

    def _aggregate(self, kind: AggregateKind, position: int | str) -> DataStream:
        record_type = self.transformation.output_type
        _check_position(kind.value, position, record_type)
        spec = AggregateOperator(
            kind=kind,
            position=None if isinstance(record_type, BasicTypeInfo) else position,
            key_selector=self.key_selector,
        )
        return self._one_input("Keyed Aggregation", spec, record_type)


def _check_position(method: str, position: int | str, record_type: TypeInformation | None) -> None:
    """Raises InvalidProgramError where the position cannot be one, or the declared type lacks it."""
    if isinstance(position, bool) or not isinstance(position, int | str):
        raise InvalidProgramError(f"{method} takes a field's position or name, not {position!r}")
    if isinstance(record_type, BasicTypeInfo) and position != 0:
        raise InvalidProgramError(
            f"{method}({position!r}): the records are single values of {record_type}; leave the position out"
        )
    if isinstance(record_type, RowTypeInfo) and isinstance(position, str):
        names = record_type.get_field_names()
        if position not in names:
            raise InvalidProgramError(
                f"{method}({position!r}): there is no such field; the records have {names}"
            )
    if isinstance(record_type, RowTypeInfo | TupleTypeInfo) and isinstance(position, int):
        count = len(record_type.get_field_types())
        if not 0 <= position < count:
            raise InvalidProgramError(
                f"{method}({position}): the records have {count} fields, 0 to {count - 1}"
            )
