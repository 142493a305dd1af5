"""The operator of SumByWindow: its code holds the dict of the present window, and opens another out of line.

Owner: the task thread.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.state.value_table import MISSING, ValueTable
from yarrow.container.state.window_tables import TIME_WINDOWS, WindowTables
from yarrow.datastream.window import TimeWindow
from yarrow.runtime.data.keys import user_key

from . import SumByWindow

#: Dict of a window, whether there are several, the list of them, what finds what is not there, and the bounds.
Opened = tuple[dict[Any, Any], bool, list[dict[Any, Any]], Callable[[Any], Any], int, int]


class PresentWindow:
    """Tells the window at hand which keys come; see KeyReader."""

    def __init__(self) -> None:
        self.table: ValueTable | None = None

    @property
    def wants_keys(self) -> bool:
        """Known before any window is open: a heap table does nothing."""
        return True

    def prefetch(self, keys: Sequence[Any]) -> None:
        """The raw keys of the rows that come, most of them of the window at hand."""
        if self.table is not None:
            self.table.prefetch(keys)


@runs(SumByWindow)
class WindowSumsOperator(KeyReadingOperator):
    """Sums by window and key; a window that the watermark has passed is emitted and dropped."""

    stamps_rows = True

    def __init__(self, name: str, spec: SumByWindow) -> None:
        super().__init__(name)
        self._spec = spec
        self._watermark = -(1 << 63)
        self._present = PresentWindow()
        #: Rows whose window had been dropped.
        self.late = 0

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        self._selector = method_of(load_function(self._spec.key_selector, self.name), "get_key", self.name)
        self.tables: WindowTables[TimeWindow] = context.state.window_tables(
            "sums", Types.LONG(), TIME_WINDOWS
        )

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        key = generate_key(code, self._selector, value, self._present if is_head else None)
        names = [code.fresh(name) for name in ("table", "several", "live", "miss", "low", "high")]
        table, several, live, miss, low, high = names
        code.at_start(f"{low} = {high} = 0")
        with code.block(f"if not {low} <= {timestamp} < {high}:"):
            code.line(f"{', '.join(names)} = {code.bind('open_window', self._open)}({timestamp})")
        with code.block("try:"):
            with code.block(f"if {several}:"):
                code.line(f"{table} = {live}[hash({key}) % len({live})]")
            code.line(f"{table}[{key}] += {value}[1]")
        with code.block("except (KeyError, TypeError):"):
            found = code.fresh("v")
            code.line(f"{key}, {table}, {found} = {miss}({key})")
            missing = code.bind_as("MISSING", MISSING)
            code.line(f"{table}[{key}] = {value}[1] + (0 if {found} is {missing} else {found})")

    def _open(self, timestamp: int) -> Opened:
        start = TimeWindow.get_window_start_with_offset(timestamp, 0, self._spec.size)
        window = TimeWindow(start, start + self._spec.size)
        if window.max_timestamp() <= self._watermark:
            # Its bounds hold nothing, so that the next row asks again.
            self.late += 1
            return {}, False, [], _ignored, 0, 0
        table = self._present.table = self.tables.table(window)
        return table.live[0], len(table.live) > 1, table.live, table.miss, window.start, window.end

    def on_watermark(self, timestamp: int) -> Iterator[tuple[Any, int | None]]:
        self._watermark = timestamp
        for window in self.tables.windows_until(timestamp):
            for keys, sums in self.tables.rows(window):
                for key, total in zip(keys, sums, strict=True):
                    yield (user_key(key), window.start, total), window.max_timestamp()
            self.tables.drop(window)
        self._present.table = None


def _ignored(key: Any) -> tuple[Any, dict[Any, Any], Any]:
    return key, {}, MISSING
