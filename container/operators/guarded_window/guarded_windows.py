"""GuardedWindowingOperator: windows that leave out the rows at which reduce or aggregate fails, by `on_error`.

Owner: the task thread. A row is tried on copies first, so that state and timers are as before a row that fails. If the
trigger fails at the row, its changes are taken back. If a function fails at a window that fires, the window leaves as
the value into which its rows were folded. Errors of a trigger's timers fail the job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from yarrow.common.composite_types import TupleTypeInfo
from yarrow.container.operators.base import OperatorContext, declared_type
from yarrow.container.operators.guarded_window.row_undo import NotedTimers, RowUndo
from yarrow.container.operators.guarded_window.tried_contents import Changes, TriedContents
from yarrow.container.operators.registry import runs
from yarrow.container.operators.window.merging_windows import Merge, MergingWindowSet
from yarrow.container.operators.window.window_contents import copier_of
from yarrow.container.operators.window.window_operator import MOST_EMPTY, WindowingOperator
from yarrow.container.operators.window.window_rules import (
    checked_result,
    checked_window,
    listed_windows,
)
from yarrow.container.operators.window.window_values import WindowValues
from yarrow.container.operators.window.windowing_base import Result, Results
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.connectors.dead_letters import PARTIAL_VALUE, DeadLetter
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.window import TriggerResult
from yarrow.runtime.data.elements import MAX_TIMESTAMP, MIN_TIMESTAMP
from yarrow.runtime.data.immutability import copier_for, freeze_or_copy
from yarrow.runtime.graph.window_spec import GuardedWindowOperator, WindowKind

if TYPE_CHECKING:
    from yarrow.container.operators.failed_records import Counts, FailedRecords

#: The letter of a partial value says so, behind the error.
_TOLD: Final = (
    "a partial value leaves, which holds the rows of a slice of windows that one subtask has folded"
)


class JoinedWindow(NamedTuple):
    """A window that a row joins, and what follows from that."""

    window: Any
    #: Where its content is.
    state_window: Any
    changes: Changes
    #: Windows that become one by the row.
    merges: Sequence[Merge[Any]] = ()
    #: The live windows of the key behind that; None = windows do not merge.
    live: MergingWindowSet[Any] | None = None


@runs(GuardedWindowOperator)
class GuardedWindowingOperator(WindowingOperator):
    """Runs windows of `reduce` or `aggregate` with any assigner and trigger."""

    #: Bounds count each row that comes; else they count a window's rows each time when it fires.
    _counts_coming_rows = True
    timers_type = NotedTimers
    _timers: NotedTimers
    #: The merging windows of the key before the row at hand, in stored form.
    _merging_before: Any = None

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        kept = declared_type(self._spec.kept_type)
        # A function may change its accumulator even if the program says that it changes no record.
        is_reduced = self._spec.kind is WindowKind.REDUCED
        self._content_copier = copier_of(context, kept) if is_reduced else copier_for(kept)

    def open(self) -> None:
        super().open()
        states = self._trigger_context.states
        self._undo = RowUndo(self._contents.values, states, self._timers, self._former_content)

    def _on_first_use(self, values: WindowValues[Any]) -> None:
        self._undo.keep(values)

    def leave_out_by(self, failed: FailedRecords) -> None:
        # Results of a row are those of windows that fire, which no row is at fault for.
        failed.inputs = ()
        if self._spec.pre_aggregated:
            _, partial, single = cast(TupleTypeInfo, failed.type_of(0)).get_field_types()
            failed.take_also(0, single)
            failed.take_also(PARTIAL_VALUE, partial)
        else:
            failed.take_also(PARTIAL_VALUE, declared_type(self._spec.kept_type))
        super().leave_out_by(failed)

    def on_row(self, row: Any, timestamp: int | None) -> Results:
        """As the general operator; a row that fails leaves as a letter, and everything is as before it."""
        failed = self.failed
        assert failed is not None, "the program says on_error"
        if self._owes_timers:
            yield from self._fire_owed_timers()
        failed.seen[0] += self._counts_coming_rows
        self._at = None
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        windows: list[Any] | None = None
        try:
            found = self._assigner.assign_windows(row, stamp, self._assigner_context)
            windows = listed_windows(found, self._assigner)
            for window in windows:
                checked_window(window, self._window_type, self._assigner)
            steps = self._tried(windows, row, stamp)
        except Exception as error:
            # An assigner refuses each row without a time: the program is at fault.
            if (timestamp is None and self._event_time) or failed.is_fatal(error):
                raise self._failure(short_record(self._row_of(row)), error) from error
            yield from self._left_out(error, row, timestamp, windows)
            return
        yield from self._take_steps(steps, row, timestamp, windows)
        if not steps:
            yield from self._row_without_window(row, timestamp, windows)
        if self._contents.values.perhaps_empty > MOST_EMPTY:
            self._drop_empty()

    def _take_steps(
        self, steps: Sequence[JoinedWindow], row: Any, timestamp: int | None, windows: list[Any]
    ) -> Results:
        """Writes what was tried; the results of windows that fire by the row, or its letter if the trigger fails.

        Results of the first windows wait for the trigger's decision about the last one.
        """
        stamp = MIN_TIMESTAMP if timestamp is None else timestamp
        held, last, stale = list[Result](), cast(Iterable[Result], ()), set[Any]()
        counts = self._begin_undo(steps)
        try:
            for step in steps:
                held += self._fixed(last)
                try:
                    last = self._taken(step, row, stamp, stale)
                except Exception as error:
                    self._take_back(error, counts)
                    held, last = [], self._left_out(error, row, timestamp, windows)
                    break
            self._undo.end()
            yield from held
            yield from last
        except OperatorFailure:
            raise
        except Exception as error:
            raise self._failure(short_record(self._row_of(row)), error) from error

    def _fixed(self, results: Iterable[Result]) -> Iterable[Result]:
        """Results that wait; a generator may change an object after it has emitted it."""
        if self.context.environment.object_reuse:
            return results
        return [(freeze_or_copy(value), time) for value, time in results]

    def _take_back(self, error: Exception, counts: Counts) -> None:
        """Makes the windows as they were before the row. Raises the error again if it is none of the row."""
        failed = self.failed
        assert failed is not None, "the program says on_error"
        if failed.is_fatal(error):
            raise error
        self._undo.take_back()
        if self._merger is not None:
            self._merging_state.update(self._merging_before)
        failed.go_back_to(counts)

    def _former_content(self, content: Any) -> Callable[[], Any]:
        """Gives a content as it is now, also when it has changed: a row is tried on a copy."""
        return lambda: content

    def _begin_undo(self, steps: Sequence[JoinedWindow]) -> Counts:
        """Keeps how the windows are that a row joins, with those that may become one by it; returns the counts."""
        assert self.failed is not None, "the program says on_error"
        windows = {step.window for step in steps}
        state_windows = {step.state_window for step in steps}
        if self._merger is not None:
            self._merging_before = self._merging_state.value()
            for live in (self._merging_windows(), *(step.live for step in steps if step.live is not None)):
                windows.update(live.state_windows)
                state_windows.update(live.state_windows.values())
        self._undo.begin(self.context.state.current_key, windows, state_windows)
        return self.failed.counts

    def _left_out(
        self, error: Exception, row: Any, timestamp: int | None, windows: list[Any] | None
    ) -> Results:
        """Leaves a row out; its letter if somebody reads it. `windows`: those of the assigner; None = it has failed."""
        failed = self.failed
        assert failed is not None, "the program says on_error"
        if windows is not None:
            self._assigner.take_back(row, self._assigner_context)
        failed.seen[0] += not self._counts_coming_rows
        for letter in self._letters(failed, error, row, timestamp):
            yield letter, timestamp

    def _letters(
        self, failed: FailedRecords, error: Exception, row: Any, timestamp: int | None
    ) -> Iterable[tuple[OutputTag, DeadLetter]]:
        """Makes the letters of a row as the program knows it, or of a partial value of several rows."""
        record = self._row_of(row)
        if self._spec.pre_aggregated and row[1] is not None:
            return failed.tagged_letters(error, PARTIAL_VALUE, record, timestamp, _TOLD)
        return failed.tagged_letters(error, 0, record, timestamp)

    def _act(self, result: TriggerResult, window: Any, state_window: Any) -> Results:
        """As the base class; a window at which a function fails gives no results, and its content leaves in letters."""
        acted = super()._act(result, window, state_window)
        if not result.is_fire():
            yield from acted
            return
        failed, key, values = self.failed, self.context.state.current_key, self._contents.values
        assert failed is not None, "the program says on_error"
        content = values.get(state_window, key)
        before = content if content is MISSING else self._before_firing(failed, content)
        try:
            results = list(self._fixed(acted))
        except Exception as error:
            if failed.is_fatal(error):
                raise
            values.remove(state_window, key)
            stamp = window.max_timestamp()
            for letter in self._letters_of_window(failed, error, window, before):
                yield letter, stamp
            if failed.is_bounded:
                # Windows end without rows, too.
                failed.check()
            return
        yield from results

    def _before_firing(self, failed: FailedRecords, content: Any) -> Any:
        """The content of a window as letters hold it: a function may change it before it fails."""
        copier = self._content_copier if failed.wants_letters else None
        return content if copier is None else copier(content)

    def _letters_of_window(
        self, failed: FailedRecords, error: Exception, window: Any, before: Any
    ) -> Iterable[tuple[OutputTag, DeadLetter]]:
        """Makes the letters of a window that gives no results; `before`: its content, see `_before_firing`."""
        told = f"the window {short_record(window)} leaves as one value, into which its rows were folded"
        # Windows that are none of time never end. Readers of letters have no such time.
        stamp = window.max_timestamp()
        time = None if stamp == MAX_TIMESTAMP else stamp
        return failed.tagged_letters(error, PARTIAL_VALUE, before, time, told)

    def _tried(self, windows: Sequence[Any], row: Any, stamp: int) -> list[JoinedWindow]:
        """Each window that takes the row, with its new content. Raises what the user's function raises."""
        contents = TriedContents(self._contents, self._content_copier, self.context.state.current_key)
        if self._merger is None:
            return [
                self._tried_in(window, contents, row, stamp)
                for window in windows
                if not self._is_late(window)
            ]
        live, steps = self._merging_windows(), list[JoinedWindow]()
        for window in windows:
            joined = live.copy()
            actual, merges = joined.add(window, self._merger)
            if self._is_merged_late(actual, merges):
                continue
            live = joined
            for merge in merges:
                contents.merge(merge.state_window, merge.merged_state_windows)
            state_window = live.state_window(actual)
            contents.add(state_window, row, stamp)
            steps.append(JoinedWindow(actual, state_window, contents.take_changes(), merges, live))
        return steps

    def _tried_in(self, window: Any, contents: TriedContents, row: Any, stamp: int) -> JoinedWindow:
        self._at = window
        contents.add(window, row, stamp)
        return JoinedWindow(window, window, contents.take_changes())

    def _tried_anew(self, step: JoinedWindow, row: Any, stamp: int) -> Changes:
        """The changes of a step, from what the steps before it have left. Raises what the user's function raises."""
        contents = TriedContents(self._contents, self._content_copier, self.context.state.current_key)
        for merge in step.merges:
            contents.merge(merge.state_window, merge.merged_state_windows)
        contents.add(step.state_window, row, stamp)
        return contents.take_changes()

    def _taken(self, step: JoinedWindow, row: Any, stamp: int, stale: set[Any]) -> Iterable[Result]:
        """Writes what was tried, and asks the trigger.

        `stale`: state windows whose content is no longer the one that was tried, since a trigger has purged it.
        """
        self._at = window = step.window
        key, values = self.context.state.current_key, self._contents.values
        changes = step.changes
        if not stale.isdisjoint(changes):
            changes = self._tried_anew(step, row, stamp)
            stale.update(changes)
        for merge in step.merges:
            self._merge_timers(merge)
        if step.live is not None:
            self._keep_merging(step.live)
        for state_window, content in changes.items():
            if content is MISSING:
                values.remove(state_window, key)
            else:
                values.put(state_window, key, content)
        context, trigger = self._trigger_context, self._trigger
        context.window = window
        result = checked_result(trigger.on_element(row, stamp, window, context), trigger)
        if result.is_purge():
            stale.add(step.state_window)
        return self._decided(result, window, step.state_window)
