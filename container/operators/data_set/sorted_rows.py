"""SortedRows: rows in an order of their fields, in memory as far as a budget goes, in sorted runs on disk beyond it.

Owner: the task thread. Rows of equal order keep their own. Must not know what the rows are for.
"""

from __future__ import annotations

import heapq
import operator
import pickle
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from yarrow.container.batch.spilled_runs import SpilledRuns
from yarrow.container.codegen.failed_lines import key_error
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.operators.data_set.replayed_rows import ROW_OVERHEAD
from yarrow.container.protocol.failure import OperatorFailure, has_user_frame, short_record
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.data.errors import UnorderedRowsError
from yarrow.runtime.graph.data_set_spec import SortField

_FLOATS: Final = (float, np.floating)
#: Of a value that has an order among others; None and NaN have places before and behind them.
_VALUE: Final = 1


class Descending:
    """A value that sorts in reverse."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Descending) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Descending) and bool(self.value == other.value)

    __hash__ = None  # type: ignore[assignment]


def order_of(fields: list[tuple[Callable[[Any], Any], bool]]) -> Callable[[Any], Any]:
    """The function of a row that sorts rows by fields, each ascending or not.

    None comes before other values, and NaN behind them, as in Flink: NaN itself has no order, and would leave rows
    around it unsorted.
    """

    def order(row: Any) -> tuple[Any, ...]:
        try:
            values = [_placed(value_of(row)) for value_of, _ in fields]
        except (LookupError, TypeError) as error:
            told: BaseException = error
            for value_of, _ in fields:
                told = key_error(value_of, row, told)
            if told is error:
                raise
            raise told from None
        return tuple([value if fields[place][1] else Descending(value) for place, value in enumerate(values)])

    return order


def _placed(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, None
    if isinstance(value, _FLOATS) and value != value:
        return 2, None
    return _VALUE, value


def order_by(fields: Sequence[SortField], operator: str) -> Callable[[Any], Any]:
    """The same of the fields of a spec; `operator` is named if a selector cannot be loaded."""
    return order_of(
        [
            (method_of(load_function(field.selector, operator), "get_key", operator), field.ascending)
            for field in fields
        ]
    )


def sort_rows(rows: list[Any], order: Callable[[Any], Any], name: str) -> None:
    """Sorts rows of the operator `name`. Raises OperatorFailure with two rows that cannot be compared."""
    try:
        rows.sort(key=order)
    except BaseException as error:  # fields of the user's rows may raise anything
        pair = [] if has_user_frame(error) else _without_order(rows, order)
        raise OperatorFailure(name, short_record(pair or rows[:1]), _told(pair, error)) from error


def _told(pair: Sequence[Any], error: BaseException) -> BaseException:
    """The error, or a sentence on two rows if values that are compared are built in."""
    if isinstance(error, TypeError) and not has_user_frame(error, heapq):
        return UnorderedRowsError(pair, str(error))
    return error


def _without_order(rows: list[Any], order: Callable[[Any], Any]) -> list[Any]:
    """Two rows with fields that cannot be compared; empty = each row fits those before it."""
    #: By field: a row with a value there, and its order.
    seen: dict[int, tuple[Any, Any]] = {}
    for row in rows:
        try:
            values = order(row)
        except Exception:
            return []
        for place, value in enumerate(values):
            before, earlier = seen.get(place, (row, value))
            try:
                operator.lt(earlier, value)
            except TypeError:
                return [before, row]
            if (value.value if isinstance(value, Descending) else value)[0] == _VALUE:
                seen[place] = row, value
    return []


class SortedRows:
    """Rows that are sorted; `clear` begins anew."""

    def __init__(self, operator: str, order: Callable[[Any], Any], budget: int, directory: Path) -> None:
        """`operator` is named if rows cannot be compared. `budget`: estimated bytes of rows in memory."""
        self._operator = operator
        self._order = order
        self._budget = budget
        self._rows: list[Any] = []
        self._size = 0
        self._runs: SpilledRuns[Any] = SpilledRuns(directory, _encode, pickle.loads)

    def add(self, rows: list[Any]) -> None:
        """Adds rows. Raises OperatorFailure if they cannot be compared, SpillError for a full disk."""
        self._rows += rows
        self._size += estimated_bytes(rows) + ROW_OVERHEAD * len(rows)
        if self._size > self._budget:
            self._sort()
            self._runs.add(self._rows)
            self._rows, self._size = [], 0

    def in_order(self) -> Iterator[Any]:
        """All rows, in order; call it once. Raises as `add` does."""
        self._sort()
        if not len(self._runs):
            return iter(self._rows)
        self._runs.add(self._rows)
        self._rows, self._size = [], 0
        return self._merged()

    def _merged(self) -> Iterator[Any]:
        try:
            yield from self._runs.merged(self._order)
        except (GeneratorExit, YarrowError):
            raise
        except BaseException as error:  # fields of the user's rows may raise anything
            raise OperatorFailure(self._operator, "", _told((), error)) from error

    def _sort(self) -> None:
        sort_rows(self._rows, self._order, self._operator)

    def clear(self) -> None:
        """Forgets all rows, and removes files."""
        self._rows, self._size = [], 0
        self._runs.close()


def _encode(row: Any) -> bytes:
    return pickle.dumps(row, 5)
