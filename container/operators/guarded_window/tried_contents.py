"""TriedContents: what the windows of a key would keep with one row more, before anything is changed.

Owner: the task thread, for one row at a time. User functions get copies, so that a function that fails has changed
nothing. Must not know triggers, timers or merging sets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from yarrow.container.operators.window.window_contents import WindowContents
from yarrow.container.state.value_table import MISSING

#: The new content of each changed window; MISSING = it has none any more.
Changes = dict[Any, Any]


class TriedContents:
    """The contents of windows of one key, with changes that nobody has written yet."""

    def __init__(self, contents: WindowContents[Any], copier: Callable[[Any], Any] | None, key: Any) -> None:
        """`copier` copies a content that a function could change; None = no function can."""
        self._contents = contents
        self._copier = copier
        self._key = key
        #: All changes so far, and those since `take_changes` was called.
        self._all: Changes = {}
        self._latest: Changes = {}

    def merge(self, window: Any, merged: Iterable[Any]) -> None:
        """Move the contents of merged windows into that of `window`. Raises what the user's function raises."""
        for each in merged:
            moved = self._content(each)
            self._change(each, MISSING)
            if moved is not MISSING:
                content = self._content(window)
                self._change(window, moved if content is MISSING else self._contents.merged(content, moved))

    def add(self, window: Any, row: Any, stamp: int) -> None:
        """Add a row. Raises what the user's function raises."""
        row = self._contents.fixed(row)
        self._change(window, self._contents.added(self._content(window), row, stamp))

    def take_changes(self) -> Changes:
        """Return the changes since the last call."""
        taken, self._latest = self._latest, {}
        return taken

    def _content(self, window: Any) -> Any:
        """A content that a function may change, or MISSING."""
        content = self._all.get(window)
        if content is None:
            content = self._contents.values.get(window, self._key)
        return content if content is MISSING or self._copier is None else self._copier(content)

    def _change(self, window: Any, content: Any) -> None:
        # As in every state, None is no content.
        self._all[window] = self._latest[window] = MISSING if content is None else content
