"""Generates the loops that merge the slices of many keys, into which a small function of the user's is written.

Owner: the task thread. No value changes in place. Must not know windows or state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.protocol.failure import generated_line
from yarrow.container.state.value_table import MISSING

_Merge = Callable[[Any, Any], Any]
#: Gives the value of a canonical key in a slice; None = it has none.
_Getter = Callable[[Any], Any]
#: The stacks of keys behind a window, what the window is for each key, and whether it is nothing for some.
_Merged = tuple[list[Any], list[Any], bool]


class MergingLoops:
    """The loops of one operator."""

    def __init__(self, merge: _Merge, check_none: Callable[[], None], *, inlines: bool) -> None:
        """`check_none` is called if `merge` returns None. `inlines`: a small `merge` is written into the loops."""
        self._stacks = _stacks_loop(merge, check_none, inlines=inlines)
        self._columns = _columns_loop(merge, check_none, inlines=inlines)
        self._front = _front_loop(merge, check_none, inlines=inlines)

    def merge(
        self,
        keys: Sequence[Any],
        stacks: Sequence[Any],
        window: tuple[int, int],
        unread: _Getter,
        known: dict[int, _Getter],
        getter: Callable[[int], _Getter],
    ) -> _Merged | None:
        """Merges the stacks of keys; changes nothing. None = the border of some lies before the window.

        `window`: its start, and the length of a slice. `unread`: that of the slice that no window has read. `known`:
        those of slices by their start. `getter` makes one and puts it there.
        """
        found: Any = self._stacks.function(keys, stacks, *window, unread, known, getter)
        return found  # type: ignore[no-any-return]

    def merge_columns(
        self, firsts: Iterable[Any], backs: Sequence[Any], unread: Iterable[Any]
    ) -> tuple[list[Any], list[Any]]:
        """Merges the stacks of keys, which lie in columns; changes nothing.

        `firsts`: what the front is for each key. `unread`: the value of the slice that no window has read. None = there
        is none. Returns the backs behind the window, and what the window is for each key.
        """
        found: Any = self._columns.function(firsts, backs, unread)
        return found  # type: ignore[no-any-return]

    def add_to_front(
        self,
        keys: Sequence[Any],
        merged: list[Any],
        fronts: list[int],
        start: int,
        values: dict[Any, Any],
        remove: Callable[[Any], None],
    ) -> int:
        """Merges the `values` of a slice with what is `merged` of those behind it; returns the number of its values.

        Writes to `values`, `merged` and `fronts`. `remove` takes a key out of the slice.
        """
        found: Any = self._front.function(keys, merged, fronts, start, values, remove)
        return found  # type: ignore[no-any-return]

    def failed_key(self, error: Exception) -> Any:
        """The key of an error of `add_to_front`; MISSING = the error is not one of that."""
        found = generated_line(error)
        is_own = found is not None and found[0] == self._front.file_name
        return found[2]["key"] if found is not None and is_own else MISSING

    def told(self, error: Exception) -> BaseException:
        """The same error with the lines of the function in its traceback."""
        return self._front.inlined_calls.told(error)

    def close(self) -> None:
        """Lets go of the generated code."""
        self._stacks.dispose()
        self._columns.dispose()
        self._front.dispose()


def _stacks_loop(merge: _Merge, check_none: Callable[[], None], *, inlines: bool) -> CompiledCode:
    code = CodeWriter(inlines=inlines)
    check = code.bind("check_none", check_none)

    code.line("left, values, some_empty = [], [], False")
    code.line("add_left, add_value = left.append, values.append")
    with code.block("for key, (front, border, back) in zip(keys, stacks):"):
        with code.block("if border < start:"):
            code.line("return None")
        code.line("value = get_unread(key)")
        _generate_back(code, merge, check)
        with code.block("if front < start:"):
            code.line("front = start")
        code.line("value = back")
        with code.block("while front < border:"):
            with code.block("try:"):
                code.line("get = known[front]")
            with code.block("except KeyError:"):
                code.line("get = getter(front)")
            code.line("first = get(key)")
            with code.block("if first is not None:"):
                with code.block("if back is None:"):
                    code.line("value = first")
                with code.block("else:"):
                    _generate_merged(code, merge, check, "first", "back", into="value")
                code.line("break")
            code.line("front += step")
        with code.block("if value is None:"):
            code.line("some_empty = True")
        code.line("add_left((front, border, back))")
        code.line("add_value(value)")
    code.line("return left, values, some_empty")
    return code.compile("merged", "keys, stacks, start, step, get_unread, known, getter")


def _columns_loop(merge: _Merge, check_none: Callable[[], None], *, inlines: bool) -> CompiledCode:
    code = CodeWriter(inlines=inlines)
    check = code.bind("check_none", check_none)
    code.line("left, values = [], []")
    code.line("add_left, add_value = left.append, values.append")
    with code.block("for first, back, value in zip(firsts, backs, unread):"):
        _generate_back(code, merge, check)
        code.line("add_left(back)")
        with code.block("if first is None:"):
            code.line("add_value(back)")
        with code.block("elif back is None:"):
            code.line("add_value(first)")
        with code.block("else:"):
            _generate_merged(code, merge, check, "first", "back", into="value")
            code.line("add_value(value)")
    code.line("return left, values")
    return code.compile("columns", "firsts, backs, unread")


def _generate_back(code: CodeWriter, merge: _Merge, check: str) -> None:
    """Generates code that adds the value of the slice that no window has read to the back."""
    with code.block("if value is not None:"):
        with code.block("if back is None:"):
            code.line("back = value")
        with code.block("else:"):
            _generate_merged(code, merge, check, "back", "value", into="back")


def _generate_merged(
    code: CodeWriter, merge: _Merge, check: str, earlier: str, later: str, *, into: str
) -> None:
    generate_call(code, "merge", merge, [earlier, later], into)
    with code.block(f"if {into} is None:"):
        code.line(f"{check}()")


def _front_loop(merge: _Merge, check_none: Callable[[], None], *, inlines: bool) -> CompiledCode:
    code = CodeWriter(inlines=inlines)
    code.line("get, found = values.get, 0")
    with code.block("for at, key in enumerate(keys):"):
        code.line("value = get(key)")
        with code.block("if value is not None:"):
            code.line("found += 1")
            code.line("behind = merged[at]")
            with code.block("if behind is not None:"):
                generate_call(code, "merge", merge, ["value", "behind"], "value")
                with code.block("if value is None:"):
                    code.line(f"{code.bind('check_none', check_none)}()")
                    code.line("remove(key)")
                with code.block("else:"):
                    code.line("values[key] = value")
            code.line("merged[at] = value")
            code.line("fronts[at] = start")
    code.line("return found")
    return code.compile("front", "keys, merged, fronts, start, values, remove")
