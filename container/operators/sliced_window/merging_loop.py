"""Generates the loop that merges the stacks of many keys, into which a small function of the user's is written.

Owner: the task thread. The loop changes no value in place. Must not know windows or state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from yarrow.container.codegen.code_writer import CodeWriter, CompiledCode
from yarrow.container.codegen.user_calls import generate_call


def merging_loop(
    merge: Callable[[Any, Any], Any], check_none: Callable[[], None], *, inlines: bool
) -> CompiledCode:
    """A function of stacks whose borders lie behind the start of the window; it changes nothing.

    Its arguments are keys, stacks, the start of the window, the length of a slice and three functions. The first one
    gives the value of a key that no window has read, the others the `get` of a slice. It returns the stacks behind the
    window, what the window is for each key, and whether it is nothing for some. It calls `check_none` if `merge`
    returns None. `inlines`: a small `merge` is written into it.
    """
    code = CodeWriter(inlines=inlines)
    check = code.bind("check_none", check_none)

    def generate_merged(earlier: str, later: str, *, into: str) -> None:
        generate_call(code, "merge", merge, [earlier, later], into)
        with code.block(f"if {into} is None:"):
            code.line(f"{check}()")

    code.line("left, values, some_empty = [], [], False")
    code.line("add_left, add_value = left.append, values.append")
    with code.block("for key, (front, border, back) in zip(keys, stacks):"):
        code.line("value = get_unread(key)")
        with code.block("if value is not None:"):
            with code.block("if back is None:"):
                code.line("back = value")
            with code.block("else:"):
                generate_merged("back", "value", into="back")
        with code.block("if front < start:"):
            code.line("front = start")
        code.line("value = back")
        with code.block("while front < border:"):
            code.line("first = (known(front) or getter(front))(key)")
            with code.block("if first is not None:"):
                with code.block("if back is None:"):
                    code.line("value = first")
                with code.block("else:"):
                    generate_merged("first", "back", into="value")
                code.line("break")
            code.line("front += step")
        with code.block("if value is None:"):
            code.line("some_empty = True")
        code.line("add_left((front, border, back))")
        code.line("add_value(value)")
    code.line("return left, values, some_empty")
    return code.compile("merged", "keys, stacks, start, step, get_unread, known, getter")
