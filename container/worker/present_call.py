"""PresentCall: the operator and the record that a task's thread has now, read from its stack.

Owner: any thread that holds the interpreter. The task pays nothing for it: generated code knows the operator of each
line, and the variable of its record. Must not call user code, so a record is shown without its own `__repr__`.
"""

from __future__ import annotations

import reprlib
import traceback
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from types import FrameType, WrapperDescriptorType
from typing import Any, Final, NamedTuple, TypeVar

from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.protocol.failure import is_engine_file
from yarrow.container.worker.log_origin import as_operator

T = TypeVar("T")
#: Most characters of a record.
_LONGEST_RECORD: Final = 300
#: Most frames of the user's that are shown.
_MOST_FRAMES: Final = 20


class PresentCall(NamedTuple):
    """What a task's thread is doing."""

    operator_name: str
    #: A short form; "" = the operator has no single record now.
    record: str
    #: The user's frames inside the operator, ready to print; "" = none, or nobody asked.
    stack: str


class RunningCode:
    """The generated functions of one running task."""

    def __init__(self, operator_names: Sequence[str]) -> None:
        """`operator_names`: in the order of the vertex."""
        self._names = tuple(operator_names)
        self._codes: dict[str, CompiledCode] = {}

    def compiled(self, code: CompiledCode) -> None:
        """Takes a function before its first call."""
        self._codes[code.file_name] = code

    def call_in(self, frame: FrameType | None, *, with_stack: bool = False) -> PresentCall | None:
        """The operator that runs in a stack, given by its innermost frame; None = no operator does."""
        inner: list[FrameType] = []
        by_method = ""
        while frame is not None:
            code = self._codes.get(frame.f_code.co_filename)
            owner = None if code is None else code.owner_of_line(frame.f_lineno or 0)
            if owner is not None:
                name, variable = self._names[owner[0]], owner[1]
                if by_method not in ("", name):
                    break
                held = frame.f_locals
                record = shown_record(held[variable]) if variable in held else ""
                return PresentCall(name, record, _stack(inner) if with_stack else "")
            by_method = by_method or _operator_of(frame)
            inner.append(frame)
            frame = frame.f_back
        if not by_method:
            return None
        return PresentCall(by_method, "", _stack(inner) if with_stack else "")


def _operator_of(frame: FrameType) -> str:
    """The name of the operator whose method a frame runs; "" = it runs none."""
    if frame.f_code.co_varnames[:1] != ("self",):
        return ""
    operator = as_operator(frame.f_locals.get("self"))
    return "" if operator is None else operator.name


def _stack(inner: Sequence[FrameType]) -> str:
    """The user's frames, the innermost last, as a traceback shows them."""
    shown = [frame for frame in inner if not is_engine_file(frame.f_code.co_filename)][:_MOST_FRAMES]
    summary = traceback.StackSummary.extract(
        ((frame, frame.f_lineno or 0) for frame in reversed(shown)), lookup_lines=True
    )
    return "".join(summary.format())


class _Shown(reprlib.Repr):
    """Values in short, by their fields where a class of a program says how they look."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 120
        self.maxlist = self.maxdict = 8
        self.maxtuple = 12

    # Those of the base class sort, and look up: both would call methods of the program's keys.
    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        items = [
            f"{self.repr1(k, level - 1)}: {self.repr1(v, level - 1)}"
            for k, v in self._first(x.items(), level)
        ]
        return f"{{{', '.join(items + self._rest(x, level))}}}"

    def repr_set(self, x: set[Any], level: int) -> str:
        items = [self.repr1(item, level - 1) for item in self._first(x, level)]
        return f"{{{', '.join(items + self._rest(x, level))}}}" if x else "set()"

    def repr_frozenset(self, x: frozenset[Any], level: int) -> str:
        items = [self.repr1(item, level - 1) for item in self._first(x, level)]
        return f"frozenset({{{', '.join(items + self._rest(x, level))}}})" if x else "frozenset()"

    def _first(self, items: Iterable[T], level: int) -> Iterator[T]:
        return islice(items, self.maxdict if level > 0 else 0)

    def _rest(self, x: Sized, level: int) -> list[str]:
        return ["..."] if len(x) > (self.maxdict if level > 0 else 0) else []

    def repr_instance(self, x: object, level: int) -> str:
        kind = type(x)
        if isinstance(x, tuple):
            # A named tuple, whose own text is the program's to write.
            return f"{kind.__name__}{self.repr_tuple(tuple(tuple.__iter__(x)), level)}"
        if isinstance(kind.__repr__, WrapperDescriptorType) and not isinstance(x, list | tuple | dict | set):
            return super().repr_instance(x, level)
        try:
            # A class of the program may have its own way to find attributes.
            fields = object.__getattribute__(x, "__dict__")
        except AttributeError:
            fields = None
        if type(fields) is not dict or level <= 0:
            return f"<{kind.__name__}>"
        shown = (
            f"{name}={self.repr1(value, level - 1)}" for name, value in list(fields.items())[: self.maxdict]
        )
        return f"{kind.__name__}({', '.join(shown)})"


_shown: Final = _Shown()


def shown_record(value: object) -> str:
    """A record in short. Never raises, never has many lines, and never calls user code."""
    try:
        text = _shown.repr(value)
    except Exception as error:  # another thread may change the value meanwhile
        text = f"<{type(value).__name__} that could not be shown: {type(error).__name__}>"
    return text.replace("\n", "\\n")[:_LONGEST_RECORD]
