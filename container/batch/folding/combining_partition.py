"""CombiningPartition: an output of a task that folds the rows of each key before they leave.

Owner: the task thread. The generated loop folds; full tables and the end of the input send what is folded. A table
holds a bounded number of keys. Where folding makes no fewer rows, rows leave as they come for a while. Must not know
aggregates: `row_folds` does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy

from yarrow.container.batch.folding.folding_worth import FoldingWorth
from yarrow.container.batch.folding.kept_values import has_known_size
from yarrow.container.batch.folding.partial_rows import PartialRows
from yarrow.container.batch.folding.row_folds import Folding, RowFold, fold_for
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.network.element_codec import estimated_bytes
from yarrow.container.network.output_channel import OutputChannel
from yarrow.container.network.result_partition import ResultPartition
from yarrow.container.task.task_environment import BatchBounds
from yarrow.runtime.data.key_groups import group_of_raw_key
from yarrow.runtime.data.keys import canonicalize
from yarrow.runtime.graph.job_graph import JobEdge
from yarrow.runtime.snapshot.key_columns import key_groups_of

#: Most and least keys of a table.
MOST_KEYS: Final = 1 << 21
LEAST_KEYS: Final = 256
#: Keys of a table until the size of rows is known: as many as rows that a loop puts into buffers without a limit.
FIRST_KEYS: Final = 2048
#: Rows of a batch whose size is looked at, and values of a table.
_SAMPLED: Final = 16
_MEASURED: Final = 1000


class TableMemory(NamedTuple):
    """How large the table of an output may become."""

    #: Estimated bytes of its entries.
    table: int
    #: Estimated bytes of rows that are folded before the size of the table is no longer bounded by that of its rows.
    rows: int


class CombiningPartition(ResultPartition):
    """The rows for a keyed vertex that begins with a rolling aggregate; its channels are those of the key groups."""

    def __init__(
        self,
        edge: JobEdge,
        channels: Sequence[OutputChannel],
        bounds: BatchBounds,
        folding: Folding,
        memory: TableMemory,
    ) -> None:
        """`memory`: estimated bytes of the table."""
        super().__init__(edge, channels, bounds.rows, bounds.bytes)
        self._most = len(channels)
        self._folding = folding
        self._memory = memory
        #: Whether the size of values can be told by looking at them, however they have grown.
        self._sizes_are_known = has_known_size(folding.row_type)
        self._is_timed = False
        self._fold: RowFold | None = None
        #: Most keys of the table, and estimated bytes of a row; known from the first row on.
        self._most_keys = FIRST_KEYS
        self._row_bytes = 0
        #: Rows that generated code has given to the fold; and how many there were when the table was last empty.
        self._offered = [0]
        self._offered_before = 0
        #: `_offered` when the table was last empty, or all of it was measured.
        self._measured_at = 0
        #: Rows that the fold has passed on, and rows that stood for folded ones.
        self._passed = 0
        self._partials = 0
        #: `_offered`, and rows that left instead, when it was last judged whether folding pays.
        self._judged = (0, 0)
        #: `records_taken` when the table was last looked at.
        self._looked_at = 0
        self._worth = FoldingWorth()

    @property
    def records_taken(self) -> int:
        return super().records_taken + self._offered[0] - self._passed

    @property
    def records_saved(self) -> int:
        """Rows that did not have to be sent."""
        return self._offered[0] - self._passed - self._partials

    # ------------------------------------------------------------------ generated code

    def generate_row(
        self, code: CodeWriter, value: str, timestamp: str | None, route: Callable[[str], None]
    ) -> None:
        is_timed = timestamp is not None
        if self._fold is None or is_timed is not self._is_timed:
            # Rows without a time come first.
            self._send_folded()
            self._is_timed = is_timed
            self._fold = fold_for(self._folding, self, timed=is_timed)
        if self._fold is None:
            route(value)
            return
        is_direct = code.fresh("d")
        code.at_start(f"{is_direct} = {code.bind('is_direct', self.is_direct)}()")
        with code.block(f"if {is_direct}:"):
            route(value)
        with code.block("else:"):
            code.count_into(self._offered)
            self._fold.generate(code, value, timestamp)

    def is_direct(self) -> bool:
        """Whether the next rows leave as they come."""
        return self._worth.rests(self.records_taken)

    # ------------------------------------------------------------------ FoldingHost

    def find_room(self, key: Any) -> Any:
        if type(key) is not int:
            key = canonicalize(key)
        assert self._fold is not None, "generated code calls this"
        entries = self._fold.entries
        if len(entries) >= self._most_keys and key not in entries:
            self._send_folded()
        return key

    def pass_on(self, key: Any, row: Any, timestamp: int | None) -> None:
        key = canonicalize(key)
        if self._fold is not None and key in self._fold.entries:
            self._send_folded()
        group = group_of_raw_key(key, self._most)
        self.buffers[group].append(row)
        if self._is_timed:
            self.timestamps[group].append(timestamp)
        self._passed += 1

    # ------------------------------------------------------------------ sending

    def flush_full(self) -> None:
        super().flush_full()
        if self._fold is None:
            return
        offered, left = self._offered[0], self._passed + self._partials
        if self.records_taken == self._looked_at:
            # The chunk had no row for this output: another run may have cut such chunks differently.
            return
        self._looked_at = self.records_taken
        if self._fold.entries:
            self._measure(self._fold)
            folded = offered - self._offered_before
            if self._worth.gives_up_early(len(self._fold.entries), folded, self._most_keys):
                self._rest()
            elif (offered - self._measured_at) * self._row_bytes > self._memory.rows:
                if self._outgrows(self._fold):
                    self._send_folded()
                self._measured_at = offered
        offered_since, left_since = offered - self._judged[0], left - self._judged[1]
        if left_since >= self._most_keys:
            self._judged = offered, left
            if self._worth.gives_up(left_since + len(self._fold.entries), offered_since):
                self._rest()

    def _rest(self) -> None:
        self._send_folded()
        self._worth.rest(self.records_taken, self._most_keys)

    def _measure(self, fold: RowFold) -> None:
        """Sets the bounds of the table by the rows in it."""
        found = max(1, estimated_bytes([fold.youngest]))
        self._row_bytes = (3 * self._row_bytes + found) // 4 if self._row_bytes else found
        most_keys = self._memory.table // fold.entry_bytes(self._row_bytes)
        self._most_keys = max(LEAST_KEYS, min(MOST_KEYS, most_keys))

    def _outgrows(self, fold: RowFold) -> bool:
        """Whether so many rows were folded that their values may have grown beyond the memory of the table."""
        if not self._sizes_are_known:
            return True
        return len(fold.entries) * fold.entry_bytes(fold.mean_row_bytes(_MEASURED)) > self._memory.table

    def flush_all(self) -> None:
        super().flush_all()
        self._send_folded()

    def _send_folded(self) -> None:
        """Sends what is folded, behind the rows that were passed on before."""
        fold = self._fold
        if fold is None or not fold.entries:
            return
        super().flush_all()
        keys, rows, stamps = fold.take()
        groups = key_groups_of(keys, self._most)
        order = numpy.argsort(groups, kind="stable")
        ends = numpy.searchsorted(groups[order], numpy.arange(self._most + 1))
        for group in range(self._most):
            for piece in self._pieces(rows, order[ends[group] : ends[group + 1]].tolist()):
                times = None if stamps is None or not self._is_timed else [stamps[at] for at in piece]
                self._partials += len(piece)
                self.batches_out += 1
                self.channels[group].send_batch(PartialRows([(keys[at], rows[at]) for at in piece], times))
        self._offered_before = self._measured_at = self._offered[0]

    def _pieces(self, rows: list[Any], places: list[int]) -> Iterator[list[int]]:
        """Parts that fit a batch, of the rows at these places: values may be much larger than the rows in them."""
        start = 0
        while start < len(places):
            step = 1 + (len(places) - start) // _SAMPLED
            row_bytes = max(estimated_bytes([rows[at]]) for at in places[start::step])
            end = start + max(1, min(self._max_rows, self._max_bytes // max(1, row_bytes)))
            yield places[start:end]
            start = end
