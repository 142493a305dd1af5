"""PresentCall: the operator and the record that a task's thread has now, read from its stack.

Owner: any thread that holds the interpreter. The task pays nothing for it: generated code knows the operator of each
line, and the variable of its record. Must not call user code, so a record is shown without its own `__repr__`.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
import reprlib
import traceback
from collections import deque
from collections.abc import Callable, ItemsView, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from types import (
    BuiltinFunctionType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
)
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast
from zoneinfo import ZoneInfo

import numpy as np

from yarrow.common.types import Row
from yarrow.common.values.secret_keys import REDACTED, is_secret_key
from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.operators.calls_beside import CallsBeside
from yarrow.container.protocol.failure import is_engine_file
from yarrow.container.worker.log_origin import as_operator
from yarrow.runtime.data.elements import ArrowBatch
from yarrow.runtime.data.immutability import ATOMIC_TYPES

if TYPE_CHECKING:
    # A worker imports it when its job has columns.
    import pyarrow as pa

#: Most characters of a record.
_LONGEST_RECORD: Final = 300
#: Most frames of the user's that are shown.
_MOST_FRAMES: Final = 20
#: Most members of a tuple, and of any other container, that are shown.
_MOST_OF_TUPLE: Final = 12
_MOST_ITEMS: Final = 8
#: Most values in a record that are looked at. Each gives a character or more, and an object may hold itself.
_MOST_VALUES: Final = _LONGEST_RECORD

#: Arrays of Arrow whose values have no classes of a program.
_PLAIN_ARRAYS: Final = frozenset(
    [
        *(f"{sign}Int{bits}Array" for sign in ("", "U") for bits in (8, 16, 32, 64)),
        *("BooleanArray", "FloatArray", "DoubleArray", "StringArray", "LargeStringArray", "Decimal128Array"),
    ]
)
#: Classes whose own text calls no user code; exact ones, for a subclass may have another text.
_PLAIN: Final[frozenset[type]] = (
    ATOMIC_TYPES
    | frozenset((bytearray, ZoneInfo, type, FunctionType, BuiltinFunctionType))
    | (frozenset(np.sctypeDict.values()) - {np.void, np.object_})
) - {re.Pattern}  # it may have been made of a subclass of str
#: Plain classes, and how each gives the plain value of an instance of its subclasses.
_PLAIN_VALUES: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (bytes, lambda x: bytes.__getitem__(x, slice(None))),
    (int, int.__int__),
    (float, float.__float__),
)
# The descriptors themselves: a metaclass of a program may answer for its classes.
_name_of: Final[Callable[[type], str]] = type.__dict__["__name__"].__get__
_bases_of: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
_namespace_of: Final[Callable[[type], Mapping[str, Any]]] = type.__dict__["__dict__"].__get__
_args_of: Final[Callable[[BaseException], tuple[Any, ...]]] = BaseException.__dict__["args"].__get__
#: In place of a variable that a frame does not have.
_ABSENT: Final = object()
#: Where a data class has its fields.
_FIELDS: Final = "__dataclass_fields__"
_names_of_row: Final[Callable[[Row], tuple[str, ...] | None]] = Row.__dict__["_fields"].__get__
_values_of_row: Final[Callable[[Row], list[Any]]] = Row.__dict__["_values"].__get__


class PresentCall(NamedTuple):
    """What a task's thread is doing."""

    operator_name: str
    #: A short form; "" = the operator has no single record now.
    record: str
    #: The user's frames inside the operator, ready to print; "" = none, or nobody asked.
    stack: str
    #: The attempt of its task; "" = the process has one task alone.
    attempt: str = ""


class _Generated(NamedTuple):
    """A generated function, and the task to which it belongs."""

    code: CompiledCode
    #: In the order of the vertex.
    operator_names: tuple[str, ...]
    attempt: str


class RunningCode:
    """The generated functions of the running tasks of a process."""

    def __init__(self) -> None:
        #: By the names of their files.
        self._codes: dict[str, _Generated] = {}

    def compiled(self, code: CompiledCode, operator_names: Sequence[str], attempt: str = "") -> None:
        """Takes a function of a task before its first call; `operator_names`: in the order of the vertex."""
        self._codes[code.file_name] = _Generated(code, tuple(operator_names), attempt)

    def forget(self, attempt: str) -> None:
        """Forgets the functions of a task that has ended."""
        # Tasks on other threads may add functions meanwhile.
        for name, each in tuple(self._codes.items()):
            if each.attempt == attempt:
                self._codes.pop(name, None)

    def call_in(self, frame: FrameType | None, *, with_stack: bool = False) -> PresentCall | None:
        """The operator that runs in a stack, given by its innermost frame; None = no operator does."""
        inner: list[FrameType] = []
        by_method: PresentCall | None = None
        while frame is not None:
            generated = self._codes.get(frame.f_code.co_filename)
            owner = None if generated is None else generated.code.owner_of_line(frame.f_lineno or 0)
            if generated is not None and owner is not None:
                name = owner.consumer or generated.operator_names[owner.operator]
                if by_method is not None and by_method.operator_name != name:
                    break
                held = frame.f_locals
                # One look: another thread may delete the variable meanwhile.
                value = held.get(owner.record, _ABSENT)
                record = "" if value is _ABSENT else shown_record(value)
                by_method = PresentCall(name, record, "", generated.attempt)
                break
            if by_method is None or not by_method.record:
                by_method = _call_by_method(frame, by_method)
            inner.append(frame)
            frame = frame.f_back
        if by_method is None or not with_stack:
            return by_method
        return by_method._replace(stack=_stack(inner))


def _call_by_method(frame: FrameType, found: PresentCall | None) -> PresentCall | None:
    """The operator whose method a frame runs, with its record if the frame tells it; `found` if it tells no more."""
    if frame.f_code.co_varnames[:1] != ("self",):
        return found
    held = frame.f_locals
    owner = held.get("self")
    if issubclass(type(owner), CallsBeside):
        calls = cast(CallsBeside, owner)
        argument = calls.argument_in(held)
        record = "" if argument is None else shown_record(argument)
        return found or PresentCall(calls.caller.operator_name, record, "", calls.caller.attempt)
    operator = as_operator(owner)
    if operator is None or (found is not None and found.operator_name != operator.name):
        return found
    attempt = operator.context.environment.attempt_id if operator.is_set_up else ""
    return PresentCall(operator.name, _record_of_method(frame, held), "", attempt)


def _record_of_method(frame: FrameType, held: Mapping[str, Any]) -> str:
    """The batch that a method of an operator has got, or the timer that it fires; "" = neither."""
    code = frame.f_code
    for name in code.co_varnames[1 : code.co_argcount]:
        value = held.get(name)
        if type(value) is ArrowBatch:
            return shown_record(value)
    key, timestamp = held.get("key", _ABSENT), held.get("timestamp", _ABSENT)
    if code.co_name == "_fire" and key is not _ABSENT and timestamp is not _ABSENT:
        return f"(timer at {shown_record(timestamp)} of the key {shown_record(key)})"
    return ""


def _stack(inner: Sequence[FrameType]) -> str:
    """The user's frames, the innermost last, as a traceback shows them."""
    shown = [frame for frame in inner if not is_engine_file(frame.f_code.co_filename)][:_MOST_FRAMES]
    summary = traceback.StackSummary.extract(
        ((frame, frame.f_lineno or 0) for frame in reversed(shown)), lookup_lines=True
    )
    return "".join(summary.format())


class _Shown(reprlib.Repr):
    """One value in short, read by the methods of built-in classes alone."""

    def __init__(self) -> None:
        super().__init__()
        self.maxstring = self.maxother = 120
        #: Values that may still be looked at.
        self._left = _MOST_VALUES

    def repr1(self, x: Any, level: int) -> str:
        self._left -= 1
        if self._left < 0:
            return "..."
        # By the exact class: the base goes by a class's name, which a class of a program may have too.
        kind = type(x)
        if kind is ArrowBatch:
            return _shown_rows(x.batch)
        if kind in (bytes, bytearray) and len(x) > self.maxother:
            # The base makes the text of all bytes before it cuts that.
            half = self.maxother // 2
            return self.repr_instance(x[:half] + x[-half:], level)
        if kind not in _PLAIN and not _is_of_arrow(kind):
            return self._contents(x, kind, level) or self._fields(x, kind, level)
        if _name_of(kind) == "RecordBatch":
            return _shown_rows(x)
        if kind in (dt.datetime, dt.time) and type(x.tzinfo) not in _PLAIN:
            # Its text has the time zone's, which a class of the program may write.
            x = x.replace(tzinfo=None)
        return super().repr1(x, level)

    def _contents(self, x: Any, kind: type, level: int) -> str:
        """A container, or a subclass of a plain class; "" = neither."""
        name, most = _name_of(kind), _MOST_ITEMS
        if issubclass(kind, dict):
            items = dict.items(x)
            text = f"{{{', '.join(self._pairs(items, level, ': ', self.repr1))}}}"
            return text if kind is dict else f"{name}({text})"
        if issubclass(kind, list):
            text = f"[{self._joined(list.__iter__(x), list.__len__(x), level, most)}]"
            return text if kind is list else f"{name}({text})"
        if issubclass(kind, tuple):
            size = tuple.__len__(x)
            text = self._joined(tuple.__iter__(x), size, level, _MOST_OF_TUPLE)
            return f"({text}{',' if size == 1 else ''})" if kind is tuple else f"{name}({text})"
        if issubclass(kind, set | frozenset):
            base: Any = set if issubclass(kind, set) else frozenset
            if not (size := base.__len__(x)):
                return f"{name}()"
            text = f"{{{self._joined(base.__iter__(x), size, level, most)}}}"
            return text if kind is set else f"{name}({text})"
        if issubclass(kind, deque):
            return f"{name}([{self._joined(deque.__iter__(x), deque.__len__(x), level, most)}])"
        if issubclass(kind, BaseException):
            args = _args_of(x)
            return f"{name}({self._joined(args, len(args), level, most)})"
        if kind is np.ndarray:
            return f"{name}([{self._joined(x.flat[:most].tolist(), x.size, level, most)}])"
        return self._subclass_of_plain(x, kind, level)

    def _subclass_of_plain(self, x: Any, kind: type, level: int) -> str:
        for base, plain in _PLAIN_VALUES:
            if issubclass(kind, base):
                return f"{_name_of(kind)}({self.repr1(plain(x), level - 1)})"
        return ""

    def _fields(self, x: Any, kind: type, level: int) -> str:
        """An instance of any other class, by its slots and its attributes."""
        name = _name_of(kind)
        if issubclass(kind, Row):
            names, values = _names_of_row(x), _values_of_row(x)
            if names is None:
                return f"{name}({self._joined(values, len(values), level, _MOST_ITEMS)})"
            fields = dict(zip(names, values, strict=False))
        else:
            fields, hidden = _fields_of(x, kind), _hidden_in(kind)
            # The text of the class itself might hide them.
            fields.update((each, REDACTED) for each in fields if each in hidden or is_secret_key(each))
        if not fields and not _has_dict(kind):
            return f"<{name}>"
        return f"{name}({', '.join(self._pairs(fields.items(), level, '=', lambda field, _: field))})"

    def _joined(self, items: Iterable[Any], size: int, level: int, most: int) -> str:
        if level <= 0:
            return "..." if size else ""
        shown = [self.repr1(item, level - 1) for item in islice(items, most)]
        return ", ".join([*shown, "..."] if size > most else shown)

    def _pairs(
        self, items: ItemsView[Any, Any], level: int, between: str, left: Callable[[Any, int], str]
    ) -> list[str]:
        if level <= 0:
            return ["..."] if items else []
        shown = [
            f"{left(key, level - 1)}{between}{self.repr1(value, level - 1)}"
            for key, value in islice(items, _MOST_ITEMS)
        ]
        return [*shown, "..."] if len(items) > _MOST_ITEMS else shown


def _shown_rows(batch: pa.RecordBatch) -> str:
    """A record batch: its rows, its columns, and the plain values of its first row."""
    rows, columns = batch.num_rows, batch.columns
    # A slice shares the memory of the whole batch, and begins at the same row of each column.
    start = columns[0].offset if columns else 0
    shown = [
        f"{name}={_Shown().repr(column[0].as_py())}"
        for name, column in islice(zip(batch.schema.names, columns, strict=False), _MOST_ITEMS)
        if rows and _name_of(type(column)) in _PLAIN_ARRAYS and _is_of_arrow(type(column))
    ]
    first = f"; the first has {', '.join(shown)}" if shown else ""
    names = ", ".join(batch.schema.names)
    return f"(rows {start} to {start + rows - 1} of a batch with the columns {names}{first})"


def _is_of_arrow(kind: type) -> bool:
    """Whether a class is one of pyarrow's own, whose values have no objects of a program."""
    if type(kind) is not type:
        return False
    module: object = kind.__module__
    return type(module) is str and module.partition(".")[0] == "pyarrow"


def _fields_of(x: Any, kind: type) -> dict[str, Any]:
    """Slots that have a value, and attributes; by the descriptors that classes have from the interpreter."""
    fields: dict[str, Any] = {}
    for base in reversed(_bases_of(kind)):
        for name, member in _namespace_of(base).items():
            if type(member) is MemberDescriptorType and name != "__dict__":
                with suppress(AttributeError):
                    fields[name] = member.__get__(x, kind)
    attributes = next((own.__get__(x, kind) for own in _dicts_of(kind)), None)
    if type(attributes) is dict:
        fields.update((name, value) for name, value in attributes.items() if type(name) is str)
    return fields


def _hidden_in(kind: type) -> set[str]:
    """The fields of a data class that its text leaves out."""
    found = next((own.get(_FIELDS) for own in map(_namespace_of, _bases_of(kind)) if _FIELDS in own), None)
    if type(found) is not dict:
        return set()
    return {name for name, field in found.items() if type(field) is dataclasses.Field and not field.repr}


def _has_dict(kind: type) -> bool:
    return any(True for _ in _dicts_of(kind))


def _dicts_of(kind: type) -> Iterator[Any]:
    for base in _bases_of(kind):
        found = _namespace_of(base).get("__dict__")
        if type(found) in (GetSetDescriptorType, MemberDescriptorType):
            yield found


def shown_record(value: object) -> str:
    """A record in short. Never raises, never has many lines, and never calls user code."""
    try:
        text = _Shown().repr(value)
    except Exception as error:  # another thread may change the value meanwhile
        text = f"<{_name_of(type(value))} that could not be shown: {type(error).__name__}>"
    return text.replace("\n", "\\n")[:_LONGEST_RECORD]
