"""MergingWindowSet: the windows of one key that merge, such as sessions, and where each keeps its content.

Owner: any thread; pure. The content of a merged window does not move if it can stay. So each window has a
*state window*, one of the windows that were merged into it. Must not know state, timers or triggers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

from yarrow.datastream.window import MergingWindowAssigner, Window
from yarrow.runtime.common.errors import InvalidProgramError

W = TypeVar("W", bound=Window)


class Merge(NamedTuple, Generic[W]):
    """Windows that have become one."""

    #: The window that replaces the others.
    result: W
    #: The windows that it replaces, without itself and without a window that only the present row has made.
    merged: tuple[W, ...]
    #: Where the content of `result` is.
    state_window: W
    #: Where the content of the merged windows is that has to move there.
    merged_state_windows: tuple[W, ...]


class MergingWindowSet(Generic[W]):
    """The live windows of a key: each with its state window."""

    def __init__(self, state_windows: Mapping[W, W]) -> None:
        self._state_windows = dict(state_windows)
        #: True if the set differs from the one that was stored.
        self.is_changed = False

    def copy(self) -> MergingWindowSet[W]:
        """Return a set of its own with the same windows."""
        copied = MergingWindowSet(self._state_windows)
        copied.is_changed = self.is_changed
        return copied

    @property
    def state_windows(self) -> Mapping[W, W]:
        """The state window of each window."""
        return self._state_windows

    def state_window(self, window: W) -> W | None:
        """Where the content of a window is; None if the window does not live."""
        return self._state_windows.get(window)

    def retire(self, window: W) -> None:
        """Forgets a window that has ended."""
        if self._state_windows.pop(window, None) is not None:
            self.is_changed = True

    def add(self, window: W, assigner: MergingWindowAssigner[Any, W]) -> tuple[W, list[Merge[W]]]:
        """Adds the window of a row. Returns the window that the row is in now, and the merges that this takes.

        Raises InvalidProgramError if the assigner merges windows that do not exist.
        """
        if window in self._state_windows:
            return window, []
        groups = _Groups[W]()
        assigner.merge_windows([*self._state_windows, window], groups)
        self.is_changed = True
        actual, merges, is_merged = window, [], False
        for result, group in groups.found:
            if window in group:
                actual, is_merged = result, True
            merges.append(self._merged(window, result, group, assigner))
        if not is_merged:
            self._state_windows[window] = window
        return actual, [merge for merge in merges if merge.merged]

    def _merged(
        self, new: W, result: W, group: Iterable[W], assigner: MergingWindowAssigner[Any, W]
    ) -> Merge[W]:
        """Replaces a group by its result."""
        former = [each for each in dict.fromkeys(group) if each != new]
        unknown = [each for each in former if each not in self._state_windows]
        if unknown or not former:
            raise InvalidProgramError(
                f"the assigner {type(assigner).__name__} merged {unknown or [new]!r} into {result!r}: merge_windows"
                " must name two or more of the windows that it was given"
            )
        state_windows = [self._state_windows.pop(each) for each in former]
        self._state_windows[result] = state_windows[0]
        return Merge(
            result,
            tuple(each for each in former if each != result),
            state_windows[0],
            tuple(state_windows[1:]),
        )


def require_end_behind(result: Window, parts: Iterable[Window], assigner: object) -> None:
    """Raises InvalidProgramError for a merged window that ends before one of the windows that were merged into it."""
    for part in parts:
        if part.max_timestamp() > result.max_timestamp():
            raise InvalidProgramError(
                f"the assigner {type(assigner).__name__} merged the live window {part!r} into {result!r}: a merged"
                " window must not end before its parts"
            )


class _Groups(MergingWindowAssigner.MergeCallback[W], Generic[W]):
    """Hears which windows become one."""

    def __init__(self) -> None:
        self.found: list[tuple[W, list[W]]] = []

    def merge(self, windows_to_be_merged: Iterable[W], merge_result: W) -> None:
        self.found.append((merge_result, list(windows_to_be_merged)))
