"""GuardedRowWindowingOperator: windows of all rows that put these aside where their function fails, by `on_error`.

Owner: the task thread. Taking a row calls the assigner alone: a row at which that fails leaves by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from yarrow.container.codegen.user_functions import load_function
from yarrow.container.operators.base import OperatorContext
from yarrow.container.operators.guarded_window.guarded_rows import GuardedRows
from yarrow.container.operators.guarded_window.guarded_windows import GuardedWindowingOperator, JoinedWindow
from yarrow.container.operators.registry import runs
from yarrow.container.operators.window.evicting_windows import (
    CONTENTS_WITH_TIMES,
    Evicting,
    open_evicting_windows,
    take_rows_without_times,
)
from yarrow.container.operators.window.stored_forms import restored_names
from yarrow.container.operators.window.window_contents import CONTENTS, WindowContents
from yarrow.container.operators.window.window_contexts import WindowEvictorContext
from yarrow.container.operators.window.windowing_base import Result
from yarrow.container.protocol.failure import short_record
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.connectors.dead_letters import ROW_OF_WINDOW, DeadLetter
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.window import Evictor, MergingWindowAssigner, TimeWindow
from yarrow.runtime.data.elements import MIN_TIMESTAMP
from yarrow.runtime.graph.window_spec import GuardedRowWindowOperator

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import FailedRecords


class _KeepsAll(Evictor[Any, Any]):
    """Removes nothing."""

    def evict_before(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        """Keep all."""

    def evict_after(self, elements: Any, size: int, window: Any, evictor_context: Any) -> None:
        """Keep all."""


@runs(GuardedRowWindowOperator)
class GuardedRowWindowingOperator(GuardedWindowingOperator):
    """Runs windows that keep all rows with their times, also where no evictor asks for times: letters have them."""

    # A window may have more rows than those of which bounds know the share.
    _counts_coming_rows = False

    def leave_out_by(self, failed: FailedRecords) -> None:
        failed.take_also(ROW_OF_WINDOW, failed.type_of(0))
        super().leave_out_by(failed)

    @property
    def _form_name(self) -> str:
        return CONTENTS_WITH_TIMES

    @property
    def _read_forms(self) -> Collection[str]:
        # An evictor asks for times. Letters of a session make it again by the times of its rows.
        merging = isinstance(self._assigner, MergingWindowAssigner)
        return (CONTENTS,) if self._keeps_rows_alone and not merging else ()

    def _open_contents(self, context: OperatorContext) -> WindowContents[Any]:
        spec, failed = self._spec, self.failed
        assert failed is not None, "the program says on_error"
        evictor = _KeepsAll() if spec.evictor is None else load_function(spec.evictor, self.name)
        evicting = Evicting(evictor, WindowEvictorContext(self._timers, context.metric_group))
        guarded = partial(GuardedRows, keeps_rows=failed.wants_letters)
        contents = open_evicting_windows(spec, context, self._form, self._combining, evicting, guarded)
        if CONTENTS in restored_names(context):
            take_rows_without_times(spec, context, self._form, contents, self._time_of)
        return contents

    def _time_of(self, window: Any) -> int:
        """The time that letters give for a row that came before the program said on_error: it makes the same window."""
        return window.start if self._event_time and type(window) is TimeWindow else MIN_TIMESTAMP

    def _tried(self, windows: Sequence[Any], row: Any, stamp: int) -> list[JoinedWindow]:
        """Each window that takes the row. Raises what the assigner raises when windows merge."""
        if self._merger is None:
            return [JoinedWindow(window, window, {}) for window in windows if not self._is_late(window)]
        live, steps = self._merging_windows(), list[JoinedWindow]()
        for window in windows:
            joined = live.copy()
            actual, merges = joined.add(window, self._merger)
            if not self._is_merged_late(actual, merges):
                live = joined
                steps.append(JoinedWindow(window, window, {}, live=joined))
        return steps

    def _taken(self, step: JoinedWindow, row: Any, stamp: int, stale: set[Any]) -> Iterable[Result]:
        self._at = step.window
        if self._merger is None:
            return self._add(step.window, step.window, row, stamp)
        return self._take_merging(step.window, row, stamp) or ()

    def _before_firing(self, failed: FailedRecords, content: Any) -> Any:
        """The rows of a window with their times; counts them."""
        failed.seen[0] += len(content)
        return list(content)

    def _letters_of_window(
        self, failed: FailedRecords, error: Exception, window: Any, before: Any
    ) -> Iterable[tuple[OutputTag, DeadLetter]]:
        """The letters of all rows, so that no later firing has them again."""
        told = f"all {len(before)} rows of the window {short_record(window)} leave"
        timed = ((row, None if stamp == MIN_TIMESTAMP else stamp) for row, stamp in before)
        return failed.letters_of_rows(error, ROW_OF_WINDOW, timed, told)

    def _former_content(self, content: Any) -> Callable[[], Any]:
        if content is MISSING:
            return lambda: MISSING
        # Rows are added in place. What evicts or merges makes another list.
        size = len(content)
        return lambda: content[:size]
