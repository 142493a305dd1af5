"""DueRows: the rows of record batches that the watermark has passed, as the loop over rows of all keys takes them.

Owner: the task thread. They leave in order of time. Objects are made a piece of work at a time. Only rows become
objects that may begin a match, or may change one of their key. Results of conditions over columns are bits of a
number, which the loop tests. Must not know the matcher. See docs/design/0044-patterns-of-columns.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Final

import numpy as np
import pyarrow as pa

from yarrow.cep.conditions import ColumnCondition
from yarrow.cep.pattern import ConditionPart
from yarrow.common.types import Row
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.operators.cep.condition_code import generate_joined, generate_part
from yarrow.container.operators.columnar_pattern.pending_batches import Numbers, WaitingColumns, codes_of
from yarrow.container.operators.columnar_pattern.relevant_rows import BEGINS, GOES_ON, Flags, bits_of
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.runtime.data.batch_key import BatchKey
from yarrow.runtime.data.column_rows import rows_of_batch


class Live(Container[Any]):
    """The canonical keys with partial matches."""

    def __init__(self, matches: ValueTable) -> None:
        """`matches`: the partial matches of all keys."""
        self._matches = matches

    def __contains__(self, key: object) -> bool:
        whole = self._matches.whole
        return self._matches.read(key) is not MISSING if whole is None else key in whole


#: Most conditions whose results fit into a signed number of 64 bits.
MOST_CONDITIONS: Final = 62


class DueRows:
    """Rows that the watermark has passed, of one piece of work."""

    def __init__(self, key: BatchKey, live: Live, rows_of: Callable[[pa.RecordBatch], list[Row]]) -> None:
        """`live` has the keys with partial matches; `rows_of` makes objects."""
        self._key = key
        self._live = live
        self._rows_of = rows_of
        #: The batch of the rows, their places in it, and how many of them have left.
        self._batch: WaitingColumns | None = None
        self._places: Numbers = np.zeros(0, np.int64)
        self._left = 0
        self._times: list[int] = []
        self._rows: list[tuple[int, Any, Row, int]] = []

    def begin(self, batch: WaitingColumns) -> None:
        """Takes the next rows, and makes objects of those that may matter. No row of the last batch may be left."""
        codes, keys = codes_of(self._key, batch.records)
        live = self._live
        places = _places_that_matter(batch, codes, np.array([key in live for key in keys], np.bool_))
        self._batch, self._places, self._left = batch, places, 0
        made = self._rows_of(rows_of_batch(batch.records, pa.array(places)))
        self._times = batch.times[places].tolist()
        keyed = [keys[code] for code in codes[places].tolist()]
        results = bits_of(batch.truths[places], np.int64).tolist()
        self._rows = list(zip(self._times, keyed, made, results, strict=True))

    @property
    def first_time(self) -> int | None:
        """The time of the first row; None = there is none."""
        return self._times[self._left] if self._left < len(self._rows) else None

    def take_with_keys(self, last: int, most: int) -> list[tuple[int, Any, Row, int]]:
        """Removes the first rows up to time `last`, at most `most` of them: time, key, row, results of conditions."""
        start = self._left
        self._left = end = min(bisect_right(self._times, last, start), start + most)
        return self._rows[start:end]

    def take_left(self) -> WaitingColumns | None:
        """Removes all rows, and returns them as they wait; None if there are none."""
        batch, places = self._batch, self._places[self._left :]
        self._batch, self._left, self._times, self._rows = None, 0, [], []
        return None if batch is None else batch.at(places)


def _places_that_matter(rows: WaitingColumns, codes: Numbers, live: Flags) -> Numbers:
    """The places of rows that may begin a match or change one, in order of time: int64, shape (rows,).

    `codes`: the number of each row's key. `live`: for each key, whether it has a partial match, bool, shape (keys,).
    """
    order = np.argsort(rows.times, kind="stable")
    codes, marks = codes[order], rows.marks[order]
    begins = np.flatnonzero(marks[:, BEGINS])
    # The first beginning of each key: of several places of a key the last one that is written stays.
    first = np.full(len(live), len(codes))
    first[codes[begins[::-1]]] = begins[::-1]
    first[live] = -1
    matters = marks[:, GOES_ON] & (np.arange(len(codes)) > first[codes])
    matters |= marks[:, BEGINS]
    return order[matters]


class RowsWithResults:
    """How the loop reads DueRows; see LoopRows."""

    parameter = "rows"

    def __init__(self, conditions: Sequence[ColumnCondition]) -> None:
        """`conditions`: those whose results are known, in the order of their bits."""
        self._bits = {id(condition): 1 << number for number, condition in enumerate(conditions)}

    def loop(self, code: CodeWriter) -> AbstractContextManager[None]:
        """See LoopRows."""
        return code.block("for time, key, row, results in rows:")

    @contextmanager
    def condition(self, code: CodeWriter, parts: Sequence[ConditionPart]) -> Iterator[None]:
        """See LoopRows."""
        bit = self._bits.get(id(parts[0].condition))
        if len(parts) == 1 and bit is not None:
            with code.block(f"if results & {bit}:"):
                yield
            return
        result = code.fresh("r")
        generate_joined(code, parts, result, lambda part: self._generate_result(code, part, result))
        with code.block(f"if {result}:"):
            yield

    def _generate_result(self, code: CodeWriter, part: ConditionPart, result: str) -> None:
        bit = self._bits.get(id(part.condition))
        if bit is not None:
            code.line(f"{result} = results & {bit}")
            return
        generate_part(code, part, "row", result)
