"""SliceStacks: two stacks of merges a key, so that a window costs a few merges however many slices it has.

Owner: the task thread. The front stack lies in the slices: each holds the merge of itself and the slices behind it, up
to a border. The back is one value: the merge of the slices from the border on that windows have read. A window is one
value of the front and the back. When slices of the back leave, the slices of the window become a new front. So each
slice is merged twice. Must not know windows' ends, watermarks or results. See docs/design/0041-windows-of-slices.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, Protocol

from yarrow.container.operators.sliced_window.merging_loop import MergingLoops
from yarrow.container.operators.sliced_window.slice_tables import SliceTables
from yarrow.container.operators.window.window_contents import WindowContents
from yarrow.container.state.value_table import MISSING
from yarrow.datastream.window import TimeWindow

#: The stacks of a key as they are stored: no slice of the front lies before the first number; the border; the back,
#: None = it has no content.
Stacks = tuple[int, int, Any]


#: Backs behind a window, and what the window is, of each key.
_Columns = tuple[list[Any], list[Any]]


class FrontColumn(NamedTuple):
    """What the front is for some keys from a slice on; None = it is nothing."""

    start: int
    values: list[Any]


class StandingKeys(Protocol):
    """Keys that stand at one window."""

    keys: list[Any]
    backs: list[Any]

    def stacks(self) -> Sequence[Stacks]:
        """The stacks of each key."""


class Fired(NamedTuple):
    """What a window is for its keys."""

    #: The keys with content, and what the window is for each.
    keys: list[Any]
    values: list[Any]
    #: The keys of which slices are left that windows have read, and their stacks behind this window.
    left: list[Any]
    stacks: list[Stacks]


class SliceStacks:
    """Merges the slices of windows, a key at a time; windows of one key come in the order of their ends."""

    def __init__(
        self,
        slices: SliceTables,
        contents: WindowContents[TimeWindow],
        own: Callable[[Any], Any] | None,
        *,
        inlines: bool = False,
    ) -> None:
        """`own` copies a value that a merge could change; None = no value can change. `inlines`: see MergingLoops."""
        self._slices, self._contents = slices, contents
        self._layout = slices.layout
        self._own = own
        self._merge = contents.merge_function if own is None else _Owning(contents.merge_function, own).merge
        #: Merge many keys at once, where no value can change.
        self._loops: MergingLoops | None = None
        if own is None:
            self._loops = MergingLoops(self._merge, contents.check_merged_to_none, inlines=inlines)
        #: The key whose merge has failed.
        self.failed: Any = None
        self._window = TimeWindow(0, 0)
        #: Where the slices begin that no window before has read, and those of them with rows.
        self._unread = 0
        self._fresh: list[int] = []

    def unread(self, window: TimeWindow) -> int:
        """The start of the first slice of a window that no window before has read."""
        return max(window.end - self._layout.slide, window.start)

    def fresh_slices(self, window: TimeWindow) -> list[int]:
        """The starts of the slices with rows that a window reads first, ascending."""
        return [at for at in range(self.unread(window), window.end, self._layout.step) if at in self._slices]

    def begin(self, window: TimeWindow) -> None:
        """The next keys are those of this window, in one piece of work."""
        self._slices.begin_work()
        self._window = window
        self._unread, self._fresh = self.unread(window), self.fresh_slices(window)

    def of_new_key(self, window: TimeWindow) -> Stacks:
        """The stacks of a key that no window before has read."""
        border = window.start if self._layout.cumulative else self.unread(window)
        return border, border, None

    def fire(self, keys: Sequence[Any], stacks: Sequence[Stacks]) -> Fired:
        """What the window at hand is for canonical keys with these stacks.

        If a function raises an error, `failed` is its key.
        """
        loops = self._loops
        if loops is None or len(self._fresh) > 1 or self._unread == self._window.start:
            return self._fire_each(keys, stacks)
        try:
            return self._fire_at_once(loops, keys, stacks) or self._fire_each(keys, stacks)
        except Exception:
            # Again, one key after the other: that raises the same, and tells the key.
            self._fire_each(keys, stacks)
            self.failed = keys[0]
            raise

    @property
    def has_columns(self) -> bool:
        """True if `fire_columns` can fire windows: no value can change, and a window reads one new slice."""
        layout = self._layout
        is_one = layout.slide == layout.step < layout.size and not layout.cumulative
        return is_one and self._loops is not None

    def fire_columns(self, block: StandingKeys, firsts: Sequence[Any] | None) -> _Columns:
        """The backs of keys behind the window at hand, and what the window is for each. Only with `has_columns`.

        `firsts`: what the front is for each; None = no key has a front. If a function raises an error, `failed` is its
        key.
        """
        loops = self._loops
        assert loops is not None
        unread = map(self._slices.getter(self._fresh[0]), block.keys) if self._fresh else repeat(None)
        try:
            return loops.merge_columns(repeat(None) if firsts is None else firsts, block.backs, unread)
        except Exception:
            # Again, one key after the other: that raises the same, and tells the key.
            self._fire_each(block.keys, block.stacks())
            self.failed = block.keys[0]
            raise

    def turned_columns(self, keys: Sequence[Any]) -> tuple[list[FrontColumn], int]:
        """Makes the front of keys anew, of all slices of the window at hand: see `_turned`."""
        columns: list[FrontColumn] = []
        _, _, found = self._turned(keys, columns)
        return columns, found

    def close(self) -> None:
        """Lets go of the generated code."""
        if self._loops is not None:
            self._loops.close()

    def _fire_at_once(
        self, loops: MergingLoops, keys: Sequence[Any], stacks: Sequence[Stacks]
    ) -> Fired | None:
        """What the window at hand is for keys whose fronts all reach into it; None = some front does not."""
        slices, window = self._slices, self._window
        unread = slices.getter(self._fresh[0]) if self._fresh else _nothing
        bounds = window.start, self._layout.step
        merged = loops.merge(keys, stacks, bounds, unread, slices.getters, slices.getter)
        if merged is None:
            return None
        left, values, some_empty = merged
        if not some_empty:
            return Fired(list(keys), values, list(keys), left)
        fired = Fired([], [], [], [])
        for key, value, entry in zip(keys, values, left, strict=True):
            if value is not None:
                fired.keys.append(key)
                fired.values.append(value)
            if entry[0] < entry[1] or entry[2] is not None:
                fired.left.append(key)
                fired.stacks.append(entry)
        return fired

    def _fire_each(self, keys: Sequence[Any], stacks: Sequence[Stacks]) -> Fired:
        """The same for any keys, one after the other."""
        start, step = self._window.start, self._layout.step
        own, merge, slices = self._own, self._merge, self._slices
        check_none = self._contents.check_merged_to_none
        if self._unread == start:
            # Nothing that was read before belongs to the window.
            stacks = [(start, start, None)] * len(keys)
        fresh = [slices.getter(at) for at in self._fresh]
        known = slices.getters
        fired = Fired([], [], [], [])
        fired_keys, values, left, left_stacks = fired
        turning: list[Any] = []
        key = None
        try:
            for key, (front, border, back) in zip(keys, stacks, strict=True):
                if border < start:
                    turning.append(key)
                    continue
                for get in fresh:
                    value = get(key)
                    if value is not None:
                        if own is not None:
                            value = own(value)
                        if back is None:
                            back = value
                        else:
                            back = merge(back, value)
                            if back is None:
                                check_none()
                if front < start:
                    front = start
                value = back
                while front < border:
                    # A loop without calls: most keys find their value in the first slice.
                    first = (known.get(front) or slices.getter(front))(key)
                    if first is not None:
                        value = first
                        if back is not None:
                            value = merge(first if own is None else own(first), back)
                            if value is None:
                                check_none()
                        break
                    front += step
                if value is not None:
                    fired_keys.append(key)
                    values.append(value)
                if front < border or back is not None:
                    left.append(key)
                    left_stacks.append((front, border, back))
        except Exception:
            self.failed = key
            raise
        if turning:
            self._turn(turning, fired)
        return fired

    def _turn(self, keys: Sequence[Any], fired: Fired) -> None:
        """Makes the front of keys anew, of all slices of the window at hand."""
        merged, fronts, _ = self._turned(keys)
        for key, value, front in zip(keys, merged, fronts, strict=True):
            if value is not None:
                fired.keys.append(key)
                fired.values.append(value)
                fired.left.append(key)
                fired.stacks.append((front, self._window.end, None))

    def _turned(
        self, keys: Sequence[Any], columns: list[FrontColumn] | None = None
    ) -> tuple[list[Any], list[int], int]:
        """The new fronts of keys, the slices where they begin, and the number of values in slices.

        `columns` gets what the front is from each slice on that has a value, the last slice first. If a function raises
        an error, `failed` is its key.
        """
        found = 0
        slices, merge, end, loops = self._slices, self._merge, self._window.end, self._loops
        merged: list[Any] = [None] * len(keys)
        fronts = [end] * len(keys)
        key = None
        try:
            for start in range(end - self._layout.step, self._window.start - 1, -self._layout.step):
                table = slices.table(start)
                if table is None:
                    continue
                get, whole = slices.getter(start), table.whole
                before = found
                if loops is not None and whole is not None:
                    found += loops.add_to_front(keys, merged, fronts, start, whole, table.remove)
                for at, key in enumerate(keys) if loops is None or whole is None else ():
                    value = get(key)
                    if value is None:
                        continue
                    found += 1
                    behind = merged[at]
                    if behind is not None:
                        value = merge(value, behind)
                        if value is None:
                            self._contents.check_merged_to_none()
                        if whole is not None and value is not None:
                            whole[key] = value
                        else:
                            slices.put(start, key, value)
                    merged[at], fronts[at] = value, start
                if columns is not None and found > before:
                    columns.append(FrontColumn(start, merged.copy()))
        except Exception as error:
            in_loop = MISSING if loops is None else loops.failed_key(error)
            if loops is None or in_loop is MISSING:
                self.failed = key
                raise
            self.failed = in_loop
            raise loops.told(error) from None
        return merged, fronts, found

    def add(self, key: Any, stacks: Stacks, start: int, row: Any, stamp: int) -> Stacks:
        """Adds a row to a slice that windows of a canonical key have read; returns the key's stacks."""
        front, border, back = stacks
        contents, slices = self._contents, self._slices
        slices.begin_work()

        def with_row(value: Any) -> Any:
            # Each value gets a row of its own: a function may change it.
            return contents.added(value, contents.fixed(row), stamp)

        if start >= border:
            if not self._layout.cumulative:
                slices.open(start)
                contents.add(slices.slice(start), key, row, stamp)
            return front, border, with_row(MISSING if back is None else back)
        step = self._layout.step
        for at in range(front, start, step):
            value = slices.get(at, key)
            if value is not MISSING:
                slices.put(at, key, with_row(self._owned(value)))
        behind = (slices.get(at, key) for at in range(start, border, step))
        merged = next((value for value in behind if value is not MISSING), MISSING)
        slices.put(start, key, with_row(self._owned(merged)))
        return min(front, start), border, back

    def _owned(self, value: Any) -> Any:
        """A value of a slice, which a function may change; MISSING as it is."""
        return value if self._own is None or value is MISSING else self._own(value)


class _Owning:
    """Merges values that a merge may change: it gets a copy of the second one, which stays in a slice."""

    def __init__(self, merge: Callable[[Any, Any], Any], own: Callable[[Any], Any]) -> None:
        self._merge, self._own = merge, own

    def merge(self, first: Any, second: Any) -> Any:
        """`first` belongs to the caller, who gives it away."""
        return self._merge(first, self._own(second))


def _nothing(key: Any) -> None:
    return None
