"""Finds calls behind a program's first `execute` that may execute another job, without running them.

Owner: the main thread; pure. It reads the code of the frames in which the program stood. It also reads the functions of
the program's modules that this code names. It does not see calls within methods, nor functions of modules that the code
names by an attribute.
"""

from __future__ import annotations

import dis
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from types import CodeType, FrameType, FunctionType, MethodType, TracebackType
from typing import Final, NamedTuple

#: Methods that execute a job.
_EXECUTE: Final = frozenset({"execute", "execute_async", "execute_and_collect"})
_OWN: Final = "yarrow."
#: Folders of Python's own modules and of installed packages.
_PACKAGES: Final = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))


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
    yield from _calls(code, frame.f_globals, begin, set(), frame.f_locals)


def _calls(
    code: CodeType, names: Mapping[str, object], begin: int, seen: set[CodeType], local: Mapping[str, object]
) -> Iterator[Call]:
    seen.add(code)
    line = code.co_firstlineno
    #: The object that the last instruction has put on the stack, if it is known.
    loaded: object = None
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        before, loaded = loaded, None
        if instruction.opname in ("LOAD_NAME", "LOAD_GLOBAL"):
            loaded = names.get(instruction.argval)
        elif instruction.opname.startswith("LOAD_FAST"):
            loaded = local.get(instruction.argval)
        if instruction.offset < begin:
            continue
        if instruction.opname in ("LOAD_METHOD", "LOAD_ATTR") and instruction.argval in _EXECUTE:
            if before is None or not _is_installed(type(before).__module__):
                yield Call(code.co_filename, line, instruction.argval)
        elif isinstance(loaded, MethodType) and loaded.__name__ in _EXECUTE:
            if not _is_installed(type(loaded.__self__).__module__):
                yield Call(code.co_filename, line, loaded.__name__)
        elif (
            isinstance(loaded, FunctionType)
            and loaded.__code__ not in seen
            and not loaded.__module__.startswith(_OWN)
            and (loaded.__globals__ is names or not _is_installed(loaded.__module__))
        ):
            yield from _calls(loaded.__code__, loaded.__globals__, 0, seen, {})


def _is_installed(module: str) -> bool:
    """Whether a module is Python's or of a package: its `execute` runs no job. False for Yarrow and the program."""
    if module == "__main__" or module.startswith(_OWN):
        return False
    found = sys.modules.get(module)
    if found is None:
        return False
    file = getattr(found, "__file__", None)
    return file is None or file.startswith(_PACKAGES)
