"""PendingRows: the rows of each key that the watermark has not passed, in order of time.

Owner: the task thread. Equal times stand as they came, or in the order of a comparator once they leave. Must not know
patterns, timers or the watermark.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from functools import cmp_to_key
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.container.operators.cep.key_values import KeyValues
from yarrow.container.state.backend import KeyedStateBackend
from yarrow.container.state.value_table import MISSING

#: Name of the state.
PENDING_ROWS: Final = "_pattern_pending_rows"
#: Rows that leave at once, as a piece of work between two mails.
MOST_ROWS: Final = 4096
#: (time, row)
Waiting = tuple[int, Any]
#: Puts rows of one time, which stand as they came, in an order.
RowOrder = Callable[[list[Waiting]], list[Waiting]]
_TIME: Final = itemgetter(0)


class PendingRows:
    """The rows of all keys that wait."""

    def __init__(
        self,
        state: KeyedStateBackend,
        row_type: TypeInformation | None,
        order: RowOrder | None,
    ) -> None:
        """`row_type` None = not declared. `order` None = rows of one time leave as they came."""
        self._values = KeyValues(state, PENDING_ROWS, stored_rows_type(row_type))
        self._order = order

    def add(self, key: Any, time: int, row: Any) -> bool:
        """Adds a row of a raw key; True if it is the first one to leave."""
        canonical, entries, waiting = self._values.find(key)
        if waiting is MISSING:
            entries[canonical] = [(time, row)]
            return True
        is_first: bool = time < waiting[0][0]
        if waiting[-1][0] <= time:
            waiting.append((time, row))
        else:
            waiting.insert(_behind(waiting, time), (time, row))
        entries[canonical] = waiting
        return is_first

    def take_until(self, key: Any, time: int) -> tuple[list[Waiting], int | None]:
        """Removes rows of a raw key up to a time, and returns them with the time of the next one.

        Of many rows only the first thousands are returned; all rows of one time leave together.
        """
        canonical, entries, waiting = self._values.find(key)
        if waiting is MISSING:
            return [], None
        end = len(waiting) if waiting[-1][0] <= time else _behind(waiting, time)
        if end > MOST_ROWS:
            end = _behind(waiting, waiting[MOST_ROWS - 1][0])
        if end == len(waiting):
            self._values.remove(key)
            return self._in_order(waiting), None
        leaving = waiting[:end]
        del waiting[:end]
        entries[canonical] = waiting
        return self._in_order(leaving), waiting[0][0]

    def _in_order(self, rows: list[Waiting]) -> list[Waiting]:
        order = self._order
        if order is None:
            return rows
        return [row for _, same in groupby(rows, key=_TIME) for row in order([*same])]


def by_comparator(comparator: Callable[[Any, Any], int]) -> RowOrder:
    """What puts rows of one time in the order of a comparator; equal ones stand as they came."""
    key = cmp_to_key(comparator)
    return lambda rows: sorted(rows, key=lambda entry: key(entry[1]))


def stored_rows_type(row_type: TypeInformation | None) -> TypeInformation:
    """The type of a key's rows in state: (time, row) in order of time. `row_type` None = not declared."""
    if row_type is None:
        return Types.PICKLED_BYTE_ARRAY()
    return Types.LIST(Types.TUPLE([Types.LONG(), row_type]))


def _behind(rows: list[Waiting], time: int) -> int:
    """The place behind the rows up to a time, in a list in order of time."""
    # A tuple of the time alone comes before the rows of that time, so that no row is compared.
    end: Any = (time + 1,)
    return bisect_left(rows, end)
