"""Emitted values are fixed: immutable values pass by reference, all others are copied once.

`freeze_or_copy` is called when a value enters a batch, a second consumer or heap state. It is left out if
object reuse is on or the declared type proves that nothing can change. Owner: the task thread; the table of
known classes only grows by whole entries. It must not run user code, except __deepcopy__, __copy__ and
__reduce__ of classes that define them.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime as dt
import enum
import fractions
import functools
import gc
import keyword
import linecache
import re
import types
import uuid
import weakref
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

import numpy as np

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.types import Row, RowKind, row_of
from yarrow.runtime.data.errors import UncopyableValueError
from yarrow.runtime.data.plain_classes import (
    ClassTable,
    InstanceShape,
    compile_lines,
    differs,
    fields_of_plain_class,
    read_lines,
    shape_of,
    store_lines,
)

__all__ = ["copier_for", "copy_flat_row", "freeze_or_copy", "whole_copier_of"]

#: Objects already copied within one value, by the id of the original: keeps sharing and cycles as they were.
Memo = dict[int, Any]
Copier = Callable[[Any, Memo], Any]

#: Classes whose instances cannot change and hold nothing that can; exact types, for a subclass may add
#: attributes.
ATOMIC_TYPES: Final[frozenset[type]] = frozenset(
    (
        type(None), bool, int, float, complex, str, bytes, range, Decimal, fractions.Fraction, uuid.UUID,
        dt.date, dt.datetime, dt.time, dt.timedelta, dt.timezone,
        type(...), type(NotImplemented), re.Pattern, RowKind,
    )
)  # fmt: skip

#: Passed by reference because programs share them by name, or because they have no way to change.
_SHARED: Final[tuple[type, ...]] = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.ModuleType,
    types.CodeType,
    property,
    enum.Enum,
    dt.tzinfo,
    weakref.ref,
)

_new = object.__new__
_set = object.__setattr__


def freeze_or_copy(value: Any) -> Any:
    """The value itself when it can never change, else a copy that later changes of the original do not reach.

    Raises UncopyableValueError for a mutable value that cannot be copied.
    """
    kind = type(value)
    atoms = ATOMIC_TYPES
    try:
        if kind is tuple:
            for item in value:
                if type(item) not in atoms:
                    return _tuple(value, {})
            return value
        if kind in atoms:
            return value
        whole = whole_copier_of(kind)
        if whole is not None:
            return whole(value)
        return (_copier_by_class(kind) or _learn(kind))(value, {})
    except UncopyableValueError as error:
        raise _naming_member(value, error) from error.__cause__


def _naming_member(value: Any, error: UncopyableValueError) -> UncopyableValueError:
    """The error with the member of the whole value that cannot be copied."""
    # Imported late: only the text of this error needs it.
    from yarrow.runtime.data.unpicklable import bad_member

    if error.place:
        return error
    place, member = bad_member(value, _can_be_copied)
    return UncopyableValueError(type(member), error.cause, place, value) if place else error


def _can_be_copied(value: Any) -> bool:
    try:
        _copy(value, {})
    except Exception:  # a user's __deepcopy__ may raise anything
        return False
    return True


def copier_for(type_info: TypeInformation | None) -> Callable[[Any], Any] | None:
    """The copier of values of a declared type; None = undeclared.

    Returns None when the type proves that no copy is needed.
    """
    if type_info is not None and type_info.is_immutable:
        return None
    return freeze_or_copy


def _copy(value: Any, memo: Memo) -> Any:
    kind = type(value)
    if kind in ATOMIC_TYPES:
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    return (_copier_by_class(kind) or _learn(kind))(value, memo)


def _same(value: Any, memo: Memo) -> Any:
    return value


def _tuple(value: tuple[Any, ...], memo: Memo) -> tuple[Any, ...]:
    items = [_copy(item, memo) for item in value]
    for item, original in zip(items, value, strict=True):
        if item is not original:
            # A list inside may hold this tuple: then the copy made on the way is the one.
            return memo.setdefault(id(value), tuple(items))  # type: ignore[no-any-return]
    return value


def _list(value: list[Any], memo: Memo) -> list[Any]:
    made: list[Any] = []
    memo[id(value)] = made
    atoms = ATOMIC_TYPES
    for item in value:
        made.append(item if type(item) in atoms else _copy(item, memo))
    return made


def _dict(value: dict[Any, Any], memo: Memo) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    memo[id(value)] = made
    atoms = ATOMIC_TYPES
    for key, item in value.items():
        made[key if type(key) in atoms else _copy(key, memo)] = (
            item if type(item) in atoms else _copy(item, memo)
        )
    return made


def _set_copy(value: set[Any], memo: Memo) -> set[Any]:
    made: set[Any] = set()
    memo[id(value)] = made
    made.update([_copy(item, memo) for item in value])
    return made


def _frozenset(value: frozenset[Any], memo: Memo) -> frozenset[Any]:
    items = [(item, _copy(item, memo)) for item in value]
    return value if all(a is b for a, b in items) else frozenset([b for _, b in items])


def _deque(value: collections.deque[Any], memo: Memo) -> collections.deque[Any]:
    made: collections.deque[Any] = collections.deque(maxlen=value.maxlen)
    memo[id(value)] = made
    made.extend([_copy(item, memo) for item in value])
    return made


def _bytearray(value: bytearray, memo: Memo) -> bytearray:
    made = bytearray(value)
    memo[id(value)] = made
    return made


def _ndarray(value: np.ndarray[Any, Any], memo: Memo) -> Any:
    if value.dtype.hasobject:
        return _deep(value, memo)
    return memo.setdefault(id(value), value.copy())


def _row(value: Row, memo: Memo) -> Row:
    made = Row.__new__(Row)
    memo[id(value)] = made
    _set(made, "_fields", value._fields)
    _set(made, "_row_kind", value._row_kind)
    values = value._values
    atoms = ATOMIC_TYPES
    for item in values:
        if type(item) not in atoms:
            _set(made, "_values", [_copy(item, memo) for item in values])
            return made
    _set(made, "_values", values.copy())
    return made


def _whole_row(value: Row) -> Row:
    """A copy of a Row that stands alone: no memo is needed while all its values are atoms."""
    values = value._values
    if ATOMIC_TYPES.issuperset(map(type, values)):
        return row_of(value._fields, values.copy(), value._row_kind)
    try:
        return _row(value, {})
    except UncopyableValueError as error:
        raise _naming_member(value, error) from error.__cause__


def copy_flat_row(value: Row) -> Row:
    """A copy of a Row whose values are atoms, as the caller knows."""
    return row_of(value._fields, value._values.copy(), value._row_kind)


def _deep(value: Any, memo: Memo) -> Any:
    """Copy by the copy protocol, which honours the class's own methods."""
    try:
        made = copy.deepcopy(value, memo)
    except Exception as error:
        raise UncopyableValueError(type(value), f"{type(error).__name__}: {error}") from error
    memo[id(value)] = made
    return made


def _clone(value: Any, memo: Memo) -> Any:
    return memo.setdefault(id(value), value.clone())


_BUILT_IN: Final[dict[type, Copier]] = {
    **dict.fromkeys(ATOMIC_TYPES, _same),
    tuple: _tuple,
    list: _list,
    dict: _dict,
    set: _set_copy,
    frozenset: _frozenset,
    collections.deque: _deque,
    bytearray: _bytearray,
    np.ndarray: _ndarray,
    Row: _row,
}
#: For plain classes a copier of values that stand alone: no memo is needed while all their fields are atoms.
_whole_copiers: Final = ClassTable[Callable[[Any], Any]]({Row: _whole_row})
#: Copier by exact class; grows by each class seen.
_copiers: Final = ClassTable[Copier](_BUILT_IN, _whole_copiers)
_copier_by_class: Final = _copiers.get
#: The copier that `freeze_or_copy` would call for values of an exact class, or None: generated code saves
#: itself a call. Generated code asks once a value, for the copier of a class may be replaced.
whole_copier_of: Final = _whole_copiers.get


def _learn(cls: type) -> Copier:
    copier = _copier_of(cls)
    _copiers.put(cls, copier)
    return copier


def _copier_of(cls: type) -> Copier:
    if issubclass(cls, _SHARED) or (
        issubclass(cls, np.generic) and not issubclass(cls, (np.void, np.object_))
    ):
        return _same
    package = cls.__module__.partition(".")[0]
    if package == "pyarrow":
        return _same  # Arrow data are immutable
    if package == "polars" and cls.__name__ in ("DataFrame", "Series", "LazyFrame"):
        return _clone  # shares the immutable buffers
    if issubclass(cls, tuple) and _adds_nothing(cls, tuple):
        return functools.partial(_named_tuple, cls)
    slots = any(base.__dict__.get("__slots__") for base in cls.__mro__)
    if issubclass(cls, tuple(ATOMIC_TYPES)) and not slots:
        return _atom_with_attributes if cls.__dictoffset__ else _same
    names = fields_of_plain_class(cls)
    if names is None:
        return _deep
    frozen = bool(dataclasses.is_dataclass(cls) and cls.__dataclass_params__.frozen)  # type: ignore[attr-defined]
    return _generate(cls, names, frozen)


def _atom_with_attributes(value: Any, memo: Memo) -> Any:
    return _deep(value, memo) if value.__dict__ else value


def _adds_nothing(cls: type, base: type) -> bool:
    """Whether a subclass has no attributes of its own and no way of its own to be copied."""
    return (
        not getattr(cls, "__dictoffset__", 0)
        and "__deepcopy__" not in dir(cls)
        and cls.__new__ is not base.__new__
    )


def _named_tuple(cls: type, value: Any, memo: Memo) -> Any:
    items = [_copy(item, memo) for item in value]
    if all(a is b for a, b in zip(items, value, strict=True)):
        return value
    return memo.setdefault(id(value), tuple.__new__(cls, items))


def _generate(cls: type, names: tuple[list[str], bool], frozen: bool) -> Copier:
    slots, has_dict = names
    if not slots:
        if not has_dict:
            return _deep
        return _frozen_object_copier(cls) if frozen else _object_copier(cls)
    if has_dict or not all(name.isidentifier() and not keyword.iskeyword(name) for name in slots):
        return _deep
    return _compile_slots(cls, slots, frozen)


def _object_copier(cls: type) -> Copier:
    """Copies instances that keep everything in their __dict__, later additions included."""

    def copy_object(value: Any, memo: Memo) -> Any:
        atoms = ATOMIC_TYPES
        made: Any = _new(cls)
        memo[id(value)] = made
        fields = value.__dict__
        for item in fields.values():
            if type(item) not in atoms:
                _set(made, "__dict__", {name: _copy(item, memo) for name, item in fields.items()})
                return made
        _set(made, "__dict__", fields.copy())
        return made

    _whole_copiers.put(cls, _ShapeLearner(cls, copy_object, frozen=False).learn)
    return copy_object


def _frozen_object_copier(cls: type) -> Copier:
    """Like _object_copier, for a frozen dataclass: the value itself if nothing in it can change."""

    def copy_frozen(value: Any, memo: Memo) -> Any:
        atoms = ATOMIC_TYPES
        fields = value.__dict__
        for item in fields.values():
            if type(item) not in atoms:
                break
        else:
            return value
        made: Any = _new(cls)
        memo[id(value)] = made
        copied = {name: _copy(item, memo) for name, item in fields.items()}
        if all(a is b for a, b in zip(copied.values(), fields.values(), strict=True)):
            memo[id(value)] = value
            return value
        made.__dict__.update(copied)
        return made

    _whole_copiers.put(cls, _ShapeLearner(cls, copy_frozen, frozen=True).learn)
    return copy_frozen


class _ShapeLearner:
    """A maker of copiers for values that consist of the attributes that instances of a class are seen to have.

    Generated code tests that the attributes are those and copies field by field. Any other instance goes to the
    general copier, and the first few of these make the code anew.
    """

    _MOST_SHAPES: Final = 4

    def __init__(self, cls: type, general: Copier, frozen: bool) -> None:
        self._cls = cls
        self._general = general
        self._frozen = frozen
        self._learned = 0

    def learn(self, value: Any) -> Any:
        """A copy of a value with unexpected attributes; the next values are expected to have these."""
        try:
            made = self._general(value, {})
        except UncopyableValueError as error:
            raise _naming_member(value, error) from error.__cause__
        if self._learned < self._MOST_SHAPES:
            self._learned += 1
            fields = value.__dict__
            shape = shape_of(self._cls, list(fields))
            if shape is None:
                self._learned = self._MOST_SHAPES
            else:
                _whole_copiers.put(self._cls, self._compile(shape, list(map(type, fields.values()))))
        return made

    def _compile(self, shape: InstanceShape, kinds: list[type]) -> Callable[[Any], Any]:
        atomic = [i for i, kind in enumerate(kinds) if kind in ATOMIC_TYPES]
        scope: dict[str, Any] = {
            "names": shape.names, "referents": gc.get_referents, "atoms": ATOMIC_TYPES, "cls": self._cls,
            "copy": _copy, "general": self._general, "learn": self.learn,
            "new": _new, "type": type, "id": id, "Uncopyable": UncopyableValueError, "naming": _naming_member,
        }  # fmt: skip
        scope |= {f"t{i}": kinds[i] for i in atomic}
        tests = [f"(type(f{i}) is t{i} or type(f{i}) in atoms)" for i in atomic]
        nested = len(atomic) < len(kinds)
        lines = read_lines(shape, "value", "return learn(value)")
        if tests:
            lines.append(f"if not ({' and '.join(tests)}): return general(value, {{}})")
        if self._frozen:
            lines.append("return general(value, {})" if nested else "return value")
        else:
            lines.append("made = new(cls)")
            if nested:
                lines.append("memo = {id(value): made}")
            copied = [f"f{i}" if i in atomic else f"copy(f{i}, memo)" for i in range(len(kinds))]
            lines += [*store_lines(shape, "made", copied), "return made"]
        return compile_lines("copy_fields(value)", _naming_members(lines), self._cls, scope)


def _naming_members(lines: list[str]) -> list[str]:
    """The lines of code, so that an error names the member of `value`: generated code calls copiers directly."""
    return [
        "try:",
        *(f"    {line}" for line in lines),
        "except Uncopyable as error: raise naming(value, error) from error.__cause__",
    ]


_SLOT_TEMPLATE: Final = """\
def copy_slots(value, memo):
    try:
{reads}
    except AttributeError:
        return deep(value, memo)
    if {tests}:
{immutable}
    made = new(cls)
    memo[id(value)] = made
{writes}
    return made
"""


def _compile_slots(cls: type, slots: list[str], frozen: bool) -> Copier:
    """A copier for a class of slots. Only names that the class itself declared as slots reach the source."""
    count = range(len(slots))
    reads = "\n".join(f"        f{i} = value.{name}" for i, name in enumerate(slots))
    # A class whose own __setattr__ checks or refuses must not see the copy being filled.
    direct = not differs(cls, "__setattr__")

    def store(name: str, value: str) -> str:
        return f"made.{name} = {value}" if direct else f"store(made, {name!r}, {value})"

    tests = " and ".join(f"type(f{i}) in atoms" for i in count)
    plain = "\n".join(f"        {store(name, f'f{i}')}" for i, name in enumerate(slots))
    immutable = "        return value" if frozen else f"        made = new(cls)\n{plain}\n"
    if not frozen:
        immutable += "        memo[id(value)] = made\n        return made"
    writes = "\n".join(f"    {store(name, f'copy(f{i}, memo)')}" for i, name in enumerate(slots))
    if frozen:
        writes += "\n    if " + " and ".join(f"made.{name} is f{i}" for i, name in enumerate(slots)) + ":"
        writes += "\n        memo[id(value)] = value\n        return value"
    source = _SLOT_TEMPLATE.format(reads=reads, tests=tests, immutable=immutable, writes=writes)
    filename = f"<copier of {cls.__module__}.{cls.__qualname__}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    scope: dict[str, Any] = {
        "atoms": ATOMIC_TYPES, "cls": cls, "copy": _copy, "deep": _deep, "new": _new, "store": _set,
    }  # fmt: skip
    exec(compile(source, filename, "exec"), scope)
    copier: Copier = scope["copy_slots"]
    return copier
