"""Ownership: a new value that only the generated code holds is the emitted value itself, without a copy.

A function that makes a new object and forgets it gives the object away. Generated code sees that by the count
of references, and asks a test of this module whether the object holds atoms alone. Nobody can then change it.
Any task thread may use the table of tests: an entry that is missing is made again. No test may run user code.
"""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any, Final

from yarrow.common.types import Row
from yarrow.runtime.data.immutability import ATOMIC_TYPES
from yarrow.runtime.data.plain_classes import (
    ClassTable,
    compile_lines,
    fields_of_plain_class,
    is_nameable,
    is_pickled_by_attributes,
    shape_of,
)

__all__ = ["COUNTS_REFERENCES", "learn_only_atoms", "only_atoms_of"]

#: Whether each variable of a function counts as a reference. From Python 3.14 on a variable may lend its own.
COUNTS_REFERENCES: Final = sys.implementation.name == "cpython" and sys.version_info < (3, 14)

OnlyAtoms = Callable[[Any], bool]

#: Instances of one class with other attributes than those before: so often the test is made anew.
_MOST_SHAPES: Final = 4
_all_atoms = ATOMIC_TYPES.issuperset


def _never(value: Any) -> bool:
    return False


def _list(value: list[Any]) -> bool:
    return _all_atoms(map(type, value))


def _dict(value: dict[Any, Any]) -> bool:
    return _all_atoms(map(type, value.values())) and _all_atoms(map(type, value))


def _set(value: set[Any]) -> bool:
    return _all_atoms(map(type, value)) and not weakref.getweakrefcount(value)


def _row(value: Row) -> bool:
    values = value._values
    # The list of values may have another holder than the Row: this attribute, `values` and the argument are three.
    return sys.getrefcount(values) == 3 and _all_atoms(map(type, values))


def _with_dict_alone(value: Any) -> bool:
    attributes = value.__dict__
    # The instance, this variable and the argument of the count hold the dict.
    return (
        sys.getrefcount(attributes) == 3
        and _all_atoms(map(type, attributes.values()))
        and not weakref.getweakrefcount(value)
    )


_BUILT_IN: Final[dict[type, OnlyAtoms]] = {list: _list, dict: _dict, set: _set, Row: _row}
_shapes_seen: Final = ClassTable[int]({})
_tests: Final = ClassTable[OnlyAtoms](_BUILT_IN, _shapes_seen)
#: The test of an exact class, or None: whether a value of it holds atoms alone, and no weak reference leads to it.
only_atoms_of: Final = _tests.get


def learn_only_atoms(value: Any) -> bool:
    """Makes the test for the class of `value` and the attributes that it has. Returns False: copy this one."""
    cls = type(value)
    seen = (_shapes_seen.get(cls) or 0) + 1
    _shapes_seen.put(cls, seen)
    _tests.put(cls, (seen <= _MOST_SHAPES and _test_of(cls, value)) or _never)
    return False


def _test_of(cls: type, value: Any) -> OnlyAtoms | None:
    fields = fields_of_plain_class(cls)
    if fields is None:
        return None
    slots, has_dict = fields
    if slots:
        if has_dict or not all(map(is_nameable, slots)):
            return None
        return _compile(cls, slots, [getattr(value, name, None) for name in slots], None)
    if not is_pickled_by_attributes(cls):
        return None
    shape = shape_of(cls, list(value.__dict__))
    if shape is None or not shape.is_countable:
        return _with_dict_alone
    # An instance whose __dict__ was made may share it with a holder: its count of referents is another one.
    return _compile(cls, shape.names, list(value.__dict__.values()), len(shape.names) + 1)


def _compile(cls: type, names: list[str], values: list[Any], referents: int | None) -> OnlyAtoms:
    """The test of instances with these attributes; the types of `values` are expected, which shortens the test."""
    fields = [f"f{i}" for i in range(len(names))]
    lines = [] if referents is None else [f"if len(referents(value)) != {referents}: return False"]
    lines += ["try:", *[f"    {f} = value.{name}" for f, name in zip(fields, names, strict=True)]]
    lines += ["except AttributeError: return learn(value)"]
    tests = [f"(type({f}) is t{f} or type({f}) in atoms)" for f in fields]
    if cls.__weakrefoffset__:
        tests.append("not weak(value)")
    lines.append(f"return {' and '.join(tests)}")
    scope = {
        "referents": gc.get_referents, "atoms": ATOMIC_TYPES, "weak": weakref.getweakrefcount, "type": type,
        "learn": learn_only_atoms, "len": len,
    }  # fmt: skip
    # A type that never matches stands for one that can change.
    scope |= {
        f"t{f}": type(v) if type(v) in ATOMIC_TYPES else None for f, v in zip(fields, values, strict=True)
    }
    return compile_lines("only_atoms(value)", lines, cls, scope)
