"""Finds calls behind a program's first `execute` that may execute another job, without running them.

Owner: the main thread; pure. It reads the code of the frames in which the program stood. It also reads the functions of
the main module that this code names.
"""

from __future__ import annotations

import dis
from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Final, NamedTuple

#: Methods that execute a job.
_EXECUTE: Final = frozenset({"execute", "execute_async", "execute_and_collect"})
_OWN: Final = "yarrow."


class Call(NamedTuple):
    """A call in the program's text."""

    file: str
    line: int
    method: str


def later_job(trace: TracebackType | None) -> Call | None:
    """The first call of an executing method behind the place where the program ended; None = there is none.

    `trace` is that of the exception which ended the program in its first `execute`.
    """
    # Innermost first: what stands behind it there comes first.
    for frame, position in reversed(list(_users_frames(trace))):
        found = next(_later_calls(frame, position), None)
        if found is not None:
            return found
    return None


def _users_frames(trace: TracebackType | None) -> Iterator[tuple[FrameType, int]]:
    while trace is not None:
        module = trace.tb_frame.f_globals.get("__name__", "")
        if not module.startswith((_OWN, "importlib", "runpy")):
            yield trace.tb_frame, trace.tb_lasti
        trace = trace.tb_next


def _later_calls(frame: FrameType, position: int) -> Iterator[Call]:
    """Calls behind `position`, or from the beginning of a loop around it, in this frame and in functions it names."""
    code = frame.f_code
    instructions = list(dis.get_instructions(code))
    loops = [
        instruction.argval
        for instruction in instructions
        if instruction.offset > position
        and instruction.opname.startswith("JUMP_BACKWARD")
        and instruction.argval <= position
    ]
    begin = min(loops, default=position + 1)
    yield from _calls(code, frame.f_globals, begin, set())


def _calls(code: CodeType, names: dict[str, object], begin: int, seen: set[CodeType]) -> Iterator[Call]:
    seen.add(code)
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if instruction.offset < begin:
            continue
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval in _EXECUTE:
            yield Call(code.co_filename, line, instruction.argval)
        elif instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            called = names.get(instruction.argval)
            if (
                isinstance(called, FunctionType)
                and called.__globals__ is names
                and called.__code__ not in seen
            ):
                yield from _calls(called.__code__, names, 0, seen)
