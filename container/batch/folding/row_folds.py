"""RowFolds: generated code that folds the rows of each key into few, before they are sent to a rolling aggregate.

Owner: the task thread, through a CombiningPartition. A fold may only drop or join rows where the aggregate behind the
exchange gives the same results. It passes on a row that the codec of the declared type would convert or refuse. So the
aggregate sees the codec's row. Rows without a time meet in order of their place, so it is enough that
folding is associative. Rows with a time are sorted by it behind the exchange: a fold keeps the rows that this order
can show. What a fold cannot judge is passed on as it is. Must not know channels.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from itertools import islice
from typing import Any, Final, NamedTuple, NoReturn, Protocol

import numpy as np

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row
from yarrow.container.batch.folding.kept_values import generate_kept, never_kept
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.failed_lines import aggregate_error
from yarrow.container.codegen.freezing import generate_fixed
from yarrow.container.codegen.user_calls import generate_call, generate_told
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.operators.rows.keyed_aggregation import with_field
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.value_table import MISSING
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.graph.operator_spec import AggregateKind

#: Types whose sums do not depend on the order of their terms, but for the last digits of floats.
NUMBERS: Final = frozenset(
    (
        int, bool, float, complex, Decimal, Fraction, dt.timedelta,
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64,
    )
)  # fmt: skip
#: Types of which any two values that can be compared are in order; NaN is passed on.
ORDERED: Final = frozenset(
    (
        int, bool, float, str, bytes, Decimal, dt.date, dt.datetime, dt.time, dt.timedelta,
        np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64, np.float32, np.float64,
    )
)  # fmt: skip

_ROWS: Final = (tuple, list, Row)
#: Estimated bytes of an entry besides its rows: the places in one or two dicts, and the list of one with times.
_ENTRY_BYTES: Final = 100
_TIMED_ENTRY_BYTES: Final = 250
#: Key, row and timestamp.
Folded = tuple[Any, Any, int | None]


class FoldedRows(NamedTuple):
    """Rows that a fold has left, as columns of one length."""

    #: Canonical keys.
    keys: list[Any]
    rows: list[Any]
    #: None = no row has a time.
    stamps: list[int | None] | None


class Folding(NamedTuple):
    """What is folded: the aggregate of an operator behind an exchange."""

    #: The operator, to be blamed for failures.
    operator: str
    #: Computes the raw key of a row.
    key: Callable[[Any], Any]
    #: The user's function of a reduce; None for a built-in aggregate.
    reduce: Callable[[Any, Any], Any] | None
    #: A reduce may take rows in any order.
    commutes: bool
    #: Of a built-in aggregate: its kind, and the field; None = the row itself.
    kind: AggregateKind | None
    position: int | str | None
    row_type: TypeInformation | None
    object_reuse: bool


class RowNames(NamedTuple):
    """The variables of one row in generated code."""

    key: str
    value: str
    #: The field that is aggregated, or the value itself.
    field: str
    #: None if the loop has no timestamps.
    timestamp: str | None


class FoldingHost(Protocol):
    """What a fold calls when it is full, or may not fold a row."""

    def find_room(self, key: Any) -> Any:
        """The canonical form of a raw key; the fold has room for one more entry."""
        ...

    def pass_on(self, key: Any, row: Any, timestamp: int | None) -> None:
        """Sends a row as it is, behind those of its key that were folded before."""
        ...


def fold_for(folding: Folding, host: FoldingHost, *, timed: bool) -> RowFold | None:
    """The fold of rows with or without timestamps; None if these rows cannot be folded."""
    if never_kept(folding.row_type):
        return None
    if folding.reduce is not None:
        if timed and not folding.commutes:
            return None
        return (_TimedReduction if timed else _Reduction)(folding, host)
    if folding.kind is AggregateKind.SUM:
        return (_TimedSum if timed else _FieldFold)(folding, host)
    if timed:
        return _TimedExtreme(folding, host)
    if folding.kind in (AggregateKind.MIN_BY, AggregateKind.MAX_BY):
        return _BestRow(folding, host)
    return _FieldFold(folding, host)


class RowFold(ABC):
    """Folds rows into entries, one for each key."""

    def __init__(self, folding: Folding, host: FoldingHost) -> None:
        self._folding = folding
        self._host = host
        #: By canonical key.
        self.entries: dict[Any, Any] = {}

    @property
    def youngest(self) -> Any:
        """The row of the youngest entry; there is one."""
        return self._row_of(next(reversed(self.entries)))

    def mean_row_bytes(self, most_samples: int) -> int:
        """The mean of the estimated sizes of the entries' rows, by samples that are evenly spread."""
        step = 1 + len(self.entries) // most_samples
        sizes = [estimated_bytes([self._row_of(key)]) for key in islice(self.entries, 0, None, step)]
        return 1 + sum(sizes) // max(1, len(sizes))

    @abstractmethod
    def _row_of(self, key: Any) -> Any:
        """A row of a key's entry."""

    def entry_bytes(self, row_bytes: int) -> int:
        """Estimated bytes of an entry with rows of that size."""
        return row_bytes + _ENTRY_BYTES

    @abstractmethod
    def take(self) -> FoldedRows:
        """Takes all rows: those of a key in order, so that rows of equal time keep theirs."""

    def generate(self, code: CodeWriter, value: str, timestamp: str | None) -> None:
        """Writes the code that folds one row, whose value nobody changes any more."""
        folding = self._folding
        key = code.fresh("k")
        generate_call(code, "key", folding.key, [value], key)
        own = code.bind_as("YarrowError", YarrowError)
        error = code.fresh("x")
        with code.block("try:"):
            with code.block(f"if {generate_kept(code, value, folding.row_type)}:"):
                self._generate_kept(code, key, value, timestamp)
            with code.block("else:"):
                self._generate_passing(code, RowNames(key, value, value, timestamp))
        with code.block(f"except {own}:"):
            code.line("raise")
        with code.block(f"except BaseException as {error}:"):
            generate_told(code, error)
            code.line(f"{code.bind('blame', self._blame)}({value}, {error})")

    def _generate_kept(self, code: CodeWriter, key: str, value: str, timestamp: str | None) -> None:
        field = value if self._folding.position is None else self._field(code, value)
        row = RowNames(key, value, field, timestamp)
        guard = self._guard(code, row)
        if not guard:
            self._generate_fold(code, row)
            return
        with code.block(f"if {guard}:"):
            self._generate_passing(code, row)
        with code.block("else:"):
            self._generate_fold(code, row)

    def _blame(self, row: Any, error: BaseException) -> NoReturn:
        folding = self._folding
        told = error if folding.reduce is not None else aggregate_error(folding.position, row, error)
        raise OperatorFailure(folding.operator, short_record(row), told) from error

    def _field(self, code: CodeWriter, value: str) -> str:
        field, position = code.fresh("x"), self._folding.position
        place = str(position) if type(position) is int else code.bind("position", position)
        code.line(f"{field} = {value}[{place}]")
        return field

    def _guard(self, code: CodeWriter, row: RowNames) -> str:
        """A condition under which the row is passed on; "" = never."""
        return "" if row.timestamp is None else f"{row.timestamp} is None"

    def _generate_passing(self, code: CodeWriter, row: RowNames) -> None:
        code.line(f"{code.bind('pass_on', self._host.pass_on)}({row.key}, {row.value}, {row.timestamp})")

    def _generate_fold(self, code: CodeWriter, row: RowNames) -> None:
        key = row.key
        entries, entry = code.bind("entries", self.entries), code.fresh("e")
        missing = code.bind_as("MISSING", MISSING)
        with code.block("try:"):
            code.line(f"{entry} = {entries}[{key}]")
        with code.block("except (KeyError, TypeError):"):
            # Numbers that are not numbers, and keys with another canonical form.
            code.line(f"{key} = {code.bind('find_room', self._host.find_room)}({key})")
            code.line(f"{entry} = {entries}.get({key}, {missing})")
        with code.block(f"if {entry} is {missing}:"):
            self._first(code, entries, row)
        with code.block("else:"):
            self._next(code, entries, entry, row)

    @abstractmethod
    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        """Writes the code for the first row of a key."""

    @abstractmethod
    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        """Writes the code for a row of a key that has an entry."""

    def _is_better(self) -> str:
        """The operator between a value and the best one so far, which it replaces."""
        return "<" if self._folding.kind in (AggregateKind.MIN, AggregateKind.MIN_BY) else ">"

    def _with_field(self, row: Any, value: Any) -> Any:
        position = self._folding.position
        return value if position is None else with_field(row, position, value)


class _Reduction(RowFold):
    """A user's reduce of rows without a time: an entry is the value so far."""

    def generate(self, code: CodeWriter, value: str, timestamp: str | None) -> None:
        if self._folding.object_reuse:
            # Nobody has fixed the row, which other outputs hold, too; the function may change its arguments.
            value = generate_fixed(code, value, self._folding.row_type, False)
        super().generate(code, value, timestamp)

    def _row_of(self, key: Any) -> Any:
        return self.entries[key]

    def take(self) -> FoldedRows:
        found = FoldedRows(list(self.entries), list(self.entries.values()), None)
        self.entries.clear()
        return found

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        code.line(f"{entries}[{row.key}] = {row.value}")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        folding = self._folding
        assert folding.reduce is not None
        generate_call(code, "reduce", folding.reduce, [entry, row.value], entry)
        # A function may keep what it has returned.
        fixed = generate_fixed(code, entry, folding.row_type, folding.object_reuse)
        code.line(f"{entries}[{row.key}] = {fixed}")


class _TimedReduction(_Reduction):
    """A reduce that takes rows in any order; the value leaves with the latest time."""

    def __init__(self, folding: Folding, host: FoldingHost) -> None:
        super().__init__(folding, host)
        self._times: dict[Any, int] = {}

    def take(self) -> FoldedRows:
        # Both dicts have got their keys in one order.
        found = super().take()._replace(stamps=list(self._times.values()))
        self._times.clear()
        return found

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        super()._first(code, entries, row)
        code.line(f"{code.bind('times', self._times)}[{row.key}] = {row.timestamp}")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        super()._next(code, entries, entry, row)
        times = code.bind("times", self._times)
        with code.block(f"if {row.timestamp} > {times}[{row.key}]:"):
            code.line(f"{times}[{row.key}] = {row.timestamp}")


class _SeveralRows(RowFold):
    """A fold whose entries are no rows as they leave."""

    @abstractmethod
    def _drain(self) -> Iterator[Folded]:
        """The rows of all entries; the fold is empty behind them."""

    def take(self) -> FoldedRows:
        keys, rows, stamps = [list(column) for column in zip(*self._drain(), strict=True)]
        return FoldedRows(keys, rows, stamps)


class _FieldFold(_SeveralRows):
    """Sum, min or max of rows without a time: an entry is the field's value; other fields come from the first row."""

    def __init__(self, folding: Folding, host: FoldingHost) -> None:
        super().__init__(folding, host)
        self._firsts: dict[Any, Any] = {}

    def _row_of(self, key: Any) -> Any:
        return self._firsts[key]

    def _drain(self) -> Iterator[Folded]:
        position = self._folding.position
        for (key, total), first in zip(self.entries.items(), self._firsts.values(), strict=True):
            # A row that nothing has changed leaves as the object that it is.
            is_same = position is not None and total is first[position]
            yield key, first if is_same else self._with_field(first, total), None
        self.entries.clear()
        self._firsts.clear()

    def _guard(self, code: CodeWriter, row: RowNames) -> str:
        if self._folding.kind is AggregateKind.SUM:
            return ""
        return f"type({row.field}) not in {code.bind_as('ORDERED', ORDERED)}"

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        passed = []
        if self._folding.position is not None:
            # Of rows of other classes, the aggregate makes lists when there are two.
            passed.append(f"not isinstance({row.value}, {code.bind_as('ROWS', _ROWS)})")
        if self._folding.kind is not AggregateKind.SUM:
            # Nothing is smaller or greater than NaN: the aggregate keeps it if it comes first, and ignores it
            # otherwise.
            passed.append(f"{row.field} != {row.field}")
        if not passed:
            self._begin(code, entries, row)
            return
        with code.block(f"if {' or '.join(passed)}:"):
            self._generate_passing(code, row)
        with code.block("else:"):
            self._begin(code, entries, row)

    def _begin(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        code.line(f"{entries}[{row.key}] = {row.field}")
        code.line(f"{code.bind('firsts', self._firsts)}[{row.key}] = {row.value}")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        if self._folding.kind is AggregateKind.SUM:
            code.line(f"{entries}[{row.key}] = {entry} + {row.field}")
            return
        with code.block(f"if {row.field} {self._is_better()} {entry}:"):
            code.line(f"{entries}[{row.key}] = {row.field}")


class _BestRow(_SeveralRows):
    """min_by or max_by of rows without a time: an entry is the field's value and the first row that has it."""

    def _row_of(self, key: Any) -> Any:
        return self.entries[key][1]

    def _drain(self) -> Iterator[Folded]:
        for key, (_, row) in self.entries.items():
            yield key, row, None
        self.entries.clear()

    def _guard(self, code: CodeWriter, row: RowNames) -> str:
        return f"type({row.field}) not in {code.bind_as('ORDERED', ORDERED)}"

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        with code.block(f"if {row.field} != {row.field}:"):
            self._generate_passing(code, row)
        with code.block("else:"):
            code.line(f"{entries}[{row.key}] = {row.field}, {row.value}")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        with code.block(f"if {row.field} {self._is_better()} {entry}[0]:"):
            code.line(f"{entries}[{row.key}] = {row.field}, {row.value}")


#: Places in an entry of `_TimedSum`: the sum of all rows but the last one, or MISSING as long as there is only one;
#: time, value and row of the last; time and row of the first.
_SUM, _LAST_TIME, _LAST_VALUE, _LAST_ROW, _FIRST_TIME, _FIRST_ROW = range(6)


class _TimedSum(_SeveralRows):
    """Sum of rows with times: the first row takes the sum of all but the last one, which keeps its value and time."""

    def _row_of(self, key: Any) -> Any:
        return self.entries[key][_LAST_ROW]

    def entry_bytes(self, row_bytes: int) -> int:
        return 2 * row_bytes + _TIMED_ENTRY_BYTES

    def _drain(self) -> Iterator[Folded]:
        for key, (total, last_time, _, last, first_time, first) in self.entries.items():
            if total is not MISSING:
                yield key, self._with_field(first, total), first_time
            yield key, last, last_time
        self.entries.clear()

    def _guard(self, code: CodeWriter, row: RowNames) -> str:
        return f"{row.timestamp} is None or type({row.field}) not in {code.bind_as('NUMBERS', NUMBERS)}"

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        missing = code.bind_as("MISSING", MISSING)
        time, value = row.timestamp, row.value
        code.line(f"{entries}[{row.key}] = [{missing}, {time}, {row.field}, {value}, {time}, {value}]")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        missing, added = code.bind_as("MISSING", MISSING), code.fresh("a")
        code.line(f"{added} = {row.field}")
        with code.block(f"if {row.timestamp} >= {entry}[{_LAST_TIME}]:"):
            code.line(f"{added} = {entry}[{_LAST_VALUE}]")
            code.line(f"{entry}[{_LAST_TIME}:{_FIRST_TIME}] = {row.timestamp}, {row.field}, {row.value}")
        with code.block(f"elif {row.timestamp} < {entry}[{_FIRST_TIME}]:"):
            code.line(f"{entry}[{_FIRST_TIME}:] = {row.timestamp}, {row.value}")
        total = f"{entry}[{_SUM}]"
        code.line(f"{total} = {added} if {total} is {missing} else {total} + {added}")


#: Places in an entry of `_TimedExtreme`: time and row of the first, value, time and row of the best, time and row of
#: the last.
_FIRST, _BEST, _LAST = slice(0, 2), slice(2, 5), slice(5, 7)


class _TimedExtreme(_SeveralRows):
    """min, max, min_by or max_by of rows with times: the first, the earliest best and the last row stay as they are."""

    def _row_of(self, key: Any) -> Any:
        return self.entries[key][1]

    def entry_bytes(self, row_bytes: int) -> int:
        return 3 * row_bytes + _TIMED_ENTRY_BYTES

    def _drain(self) -> Iterator[Folded]:
        for key, entry in self.entries.items():
            first, (_, *best), last = entry[_FIRST], entry[_BEST], entry[_LAST]
            sent: list[Any] | None = None
            # A NaN that comes first stays the extreme, so the first row shows in any case: it may stand before a
            # NaN of another fold.
            for time, row in (first, best, last):
                # The same row twice would change nothing.
                if sent is None or sent[0] != time or sent[1] is not row:
                    yield key, row, time
                    sent = [time, row]
        self.entries.clear()

    def _guard(self, code: CodeWriter, row: RowNames) -> str:
        ordered = code.bind_as("ORDERED", ORDERED)
        return f"{row.timestamp} is None or type({row.field}) not in {ordered} or {row.field} != {row.field}"

    def _first(self, code: CodeWriter, entries: str, row: RowNames) -> None:
        timed = f"{row.timestamp}, {row.value}"
        code.line(f"{entries}[{row.key}] = [{timed}, {row.field}, {timed}, {timed}]")

    def _next(self, code: CodeWriter, entries: str, entry: str, row: RowNames) -> None:
        with code.block(f"if {row.timestamp} >= {entry}[5]:"):
            code.line(f"{entry}[5:] = {row.timestamp}, {row.value}")
        with code.block(f"elif {row.timestamp} < {entry}[0]:"):
            code.line(f"{entry}[:2] = {row.timestamp}, {row.value}")
        is_better = f"{row.field} {self._is_better()} {entry}[2]"
        is_earlier = f"{row.field} == {entry}[2] and {row.timestamp} < {entry}[3]"
        with code.block(f"if {is_better} or {is_earlier}:"):
            code.line(f"{entry}[2:5] = {row.field}, {row.timestamp}, {row.value}")
