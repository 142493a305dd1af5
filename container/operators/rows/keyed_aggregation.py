"""Running keyed reduce and the built-in aggregates (sum, min, max, min_by, max_by, count, mean) on rows.

Owner: the task thread. Each record emits the new value of its key. Of bounded input, each key emits its last
value once, at its end. So does a stream whose spec says `last_only`, when its input ends. The state is one value
table. Generated code reads it with the raw key, and only a miss makes the canonical key (runtime.data.keys says
why a hit is right).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Self, cast

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.common.types import Row, bear_names
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.inlined_call import LineCall
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext, declared_type
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.job_graph import OperatorDescriptor
from yarrow.runtime.graph.operator_spec import AggregateKind, AggregateOperator, ReduceOperator

#: Name of the state table of reduce and aggregates in snapshots.
_STATE_NAME = "_aggregation"
#: The input of a FoldingOperator for (key, value): values that a producer has folded from rows of bounded input.
PARTIAL_INPUT = 1


def state_type(declared: TypeInformation | None) -> TypeInformation:
    """The type of stored rows. An undeclared stream may store pickles, like a descriptor without a type."""
    return Types.PICKLED_BYTE_ARRAY() if declared is None else declared


class FoldingOperator(KeyReadingOperator):
    """Combines each record with the value of its key; the first record of a key is its first value."""

    one_to_one = True
    mixes_keys = True

    _selector_blob: bytes
    _type: TypeInformation | None
    #: `last_only` of the spec.
    _last_only: bool
    #: The combining function may change the value so far before it fails.
    _changes_values = False

    @property
    def uses_current_key(self) -> bool:
        """Whether the combining function uses keyed state of its own; known when the operator is open."""
        return False

    @abstractmethod
    def combination(self) -> Callable[[Any, Any], Any]:
        """The function (value so far, new record) -> new value."""

    def told_of(self, value: str) -> LineCall | None:
        """What tells the errors of the combining function for the record in a variable; None = they tell themselves."""
        return None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._selector = method_of(load_function(self._selector_blob, self.name), "get_key", self.name)
        self._table: ValueTable = context.state.value_table(_STATE_NAME, state_type(self._type))
        bounded = context.environment.bounded
        #: The results wait for the end of their keys; those of a stream for the end of its input.
        self._once = bounded or self._last_only
        self._ends_with_input = self._last_only and not bounded
        #: The timestamp of the last record of each key, as far as records have one.
        self._times: dict[Any, int | None] = {}
        if self._once:
            self.one_to_one = False
        if self.failed is not None:
            self.failed.of_one_to_one = not self._once
            # The state needs no key of the row at hand.
            self.failed.keyed_by(self._selector)

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        key = generate_key(code, self._selector, value, self._table if is_head else None)
        self._generate_fold(code, key, value, timestamp, emit)

    def generate_input(
        self, code: CodeWriter, index: int, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        if index != PARTIAL_INPUT:
            super().generate_input(code, index, value, timestamp, emit)
            return
        key, partial = code.fresh("k"), code.fresh("v")
        code.line(f"{key}, {partial} = {value}")
        with code.owned_by(0, partial):
            self._generate_fold(code, key, partial, timestamp, emit)

    def _generate_fold(
        self, code: CodeWriter, key: str, value: str, timestamp: str | None, emit: Emit
    ) -> None:
        combine = self.combination()
        if self.uses_current_key:
            code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")
        result = generate_keyed_update(
            code,
            self._table,
            key,
            first=lambda target: code.line(f"{target} = {value}"),
            update=lambda target: generate_call(
                code,
                "combine",
                combine,
                [self._generate_tried(code, target), value],
                target,
                self.told_of(value),
            ),
            fixed=lambda target: generate_fixed(
                code, target, self._type, self.context.environment.object_reuse
            ),
        )
        if not self._once:
            emit(result, timestamp)
        elif timestamp is not None:
            code.line(f"{code.bind('times', self._times)}[{key}] = {timestamp}")

    def _generate_tried(self, code: CodeWriter, target: str) -> str:
        """The value so far that the function gets: a copy, if it may change it and fail at a row that is left out."""
        if self.failed is None or not self._changes_values:
            return target
        return generate_fixed(code, target, self._type, self.context.environment.object_reuse)

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        if self._ends_with_input and timestamp == MAX_TIMESTAMP:
            yield from self.end_keys()

    def forwarded_watermark(self, timestamp: int) -> int | None:
        # The rows that wait are not late behind the operator.
        return None if self._ends_with_input and timestamp < MAX_TIMESTAMP else timestamp

    def end_keys(self) -> Iterator[tuple[Any, int | None]]:
        times = self._times
        for entries in self._table.dicts():
            for key, value in entries.items():
                yield value, times.get(key)
        times.clear()


@runs(ReduceOperator)
class ReducingOperator(FoldingOperator, FunctionOperator):
    """Runs reduce(function)."""

    _changes_values = True

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(
            descriptor.name, cast(ReduceOperator, descriptor.spec), declared_type(descriptor.output_type)
        )

    def __init__(self, name: str, spec: ReduceOperator, output_type: TypeInformation | None) -> None:
        super().__init__(name, spec.function, keyed=True)
        self._selector_blob = spec.key_selector
        self._type = output_type
        self._last_only = spec.last_only

    uses_current_key = FunctionOperator.uses_current_key

    def combination(self) -> Callable[[Any, Any], Any]:
        return method_of(self.function, "reduce", self.name)


class TableVariables(NamedTuple):
    """Names of the variables with a value table in generated code."""

    #: `live` of the table, the dict at hand, the number of dicts, and whether there are several.
    live: str
    entries: str
    shards: str
    sharded: str
    #: `miss` of the table.
    miss: str

    @classmethod
    def fresh(cls, code: CodeWriter) -> TableVariables:
        """New variables."""
        return cls(*map(code.fresh, ("l", "s", "n", "b", "m")))

    @classmethod
    def bound(cls, code: CodeWriter, values: ValueTable) -> TableVariables:
        """The variables of one table, which the function sets at its start."""
        live, miss = code.bind("live", values.live), code.bind("miss", values.miss)
        table = cls(live, code.fresh("s"), code.fresh("n"), code.fresh("b"), miss)
        code.at_start(f"{table.entries} = {live}[0]")
        code.at_start(f"{table.shards} = len({live})")
        code.at_start(f"{table.sharded} = {table.shards} > 1")
        return table


def generate_keyed_update(
    code: CodeWriter,
    values: ValueTable,
    key: str,
    *,
    first: Callable[[str], None],
    update: Callable[[str], None],
    fixed: Callable[[str], str],
) -> str:
    """Generates read - update - write in a value table; returns the variable of the new value. See ValueTable."""
    table = TableVariables.bound(code, values)
    result = generate_new_value(code, table, key, first=first, update=update)
    code.line(f"{table.entries}[{key}] = {fixed(result)}")
    return result


def generate_new_value(
    code: CodeWriter,
    table: TableVariables,
    key: str,
    *,
    first: Callable[[str], None],
    update: Callable[[str], None],
) -> str:
    """Generates read - update; returns the variable of the new value, which belongs into `entries` at the key."""
    result = code.fresh("v")
    with code.block("try:"):
        generate_entries(code, table, key)
        code.line(f"{result} = {table.entries}[{key}]")
    with code.block("except (KeyError, TypeError):"):
        code.line(f"{key}, {table.entries}, {result} = {table.miss}({key})")
        generate_first_or_update(code, result, first=first, update=update)
    with code.block("else:"):
        update(result)
    return result


def generate_entries(code: CodeWriter, table: TableVariables, key: str) -> None:
    """Sets `entries` to the dict of a key. TypeError for a key without a hash."""
    with code.block(f"if {table.sharded}:"):
        code.line(f"{table.entries} = {table.live}[hash({key}) % {table.shards}]")


def generate_first_or_update(
    code: CodeWriter, result: str, *, first: Callable[[str], None], update: Callable[[str], None]
) -> None:
    """Generates `first` where `result` is MISSING, else `update`."""
    with code.block(f"if {result} is {code.bind_as('MISSING', MISSING)}:"):
        first(result)
    with code.block("else:"):
        update(result)


@runs(AggregateOperator)
class FieldAggregation(FoldingOperator):
    """Runs sum, min, max, min_by, max_by, count and mean over one field; None = the record itself."""

    @classmethod
    def of(cls, descriptor: OperatorDescriptor) -> Self:
        return cls(
            descriptor.name, cast(AggregateOperator, descriptor.spec), declared_type(descriptor.output_type)
        )

    def __init__(self, name: str, spec: AggregateOperator, output_type: TypeInformation | None) -> None:
        super().__init__(name)
        self._spec = spec
        self._selector_blob = spec.key_selector
        self._type = output_type
        self._last_only = spec.last_only

    def combination(self) -> Callable[[Any, Any], Any]:
        return _combination(self._spec.kind, self._spec.position, self.name)

    def told_of(self, value: str) -> LineCall | None:
        from yarrow.container.codegen.failed_lines import FieldAggregated

        return FieldAggregated(self._spec.position, value)


def _combination(kind: AggregateKind, position: int | str | None, name: str) -> Callable[[Any, Any], Any]:
    """The function (value so far, new record) -> new value.

    As in Flink, min and max replace only the field of the first record.
    """
    if kind in (AggregateKind.MIN_BY, AggregateKind.MAX_BY):
        smaller = kind is AggregateKind.MIN_BY

        def choose(current: Any, new: Any) -> Any:
            a, b = (current, new) if position is None else (current[position], new[position])
            return new if (b < a if smaller else b > a) else current

        return choose
    field_of: dict[AggregateKind, Callable[[Any, Any], Any]] = {
        AggregateKind.SUM: lambda a, b: a + b,
        AggregateKind.MIN: min,
        AggregateKind.MAX: max,
    }
    combine = field_of.get(kind)
    if combine is None:
        raise InvalidProgramError(
            f"operator '{name}': {kind.value} is an aggregate of columns; use it on a columnar stream"
        )
    if position is None:
        return combine
    return lambda current, new: with_field(current, position, combine(current[position], new[position]))


def with_field(row: Any, position: int | str, value: Any) -> Any:
    """A copy of a tuple, named tuple, list or Row with one field replaced."""
    if isinstance(row, Row):
        copied = Row.of_kind(row.get_row_kind(), *row)
        if row._fields is not None:
            bear_names(copied, row._fields)
        copied[position] = value
        return copied
    fields = list(row)
    fields[position] = value  # type: ignore[index]
    if isinstance(row, tuple):
        return type(row)(*fields) if hasattr(row, "_fields") else tuple(fields)
    return fields
