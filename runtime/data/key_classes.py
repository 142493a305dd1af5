"""Keys that are user classes: their declared names, and their stored forms.

A frozen dataclass is a key by its declared name and its compared fields. An Enum is a key by its declared
name and member, a Row by its field names and values. Owner: whichever thread canonicalizes or decodes; the
tables here only grow by whole entries and are safe to read at any time. It must not encode, hash or route:
see key_encoding and key_groups.
"""

from __future__ import annotations

import dataclasses
import enum
import importlib
import sys
import types
from typing import Any, Final, NamedTuple

from yarrow.common.types import Row, own_names
from yarrow.runtime.data.errors import KeyDecodeError, UnsupportedKeyError

_main_module: str | None = None


def set_main_module(name: str | None) -> None:
    """Name the module under which classes of `__main__` are stored (the job's main module; None: `__main__`).

    Called once in a worker before the first record: encodings made before and after are different keys.
    """
    global _main_module
    if name != _main_module:
        _main_module = name
        _record_plans.clear()


def declared_name(cls: type) -> str:
    """`module:qualified name` of a class, with `__main__` written as the job's main module."""
    return declared_name_of(cls.__module__, cls.__qualname__)


def declared_name_of(module: str, qualified: str) -> str:
    """The declared name of a class that is known by its module and its qualified name."""
    if module == "__main__" and _main_module is not None:
        module = _main_module
    return f"{module}:{qualified}"


def resolve_class(name: str) -> type:
    """The class of a declared name; its module is imported if it is not yet. Raises KeyDecodeError."""
    module_name, _, qualified = name.partition(":")
    if module_name == _main_module:
        module_name = "__main__"
    try:
        found: Any = importlib.import_module(module_name)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as error:
        raise KeyDecodeError(
            f"the key class {name} is not found ({error}). Ship the module that defines it, or give it its "
            f"old name."
        ) from error
    if not isinstance(found, type):
        raise KeyDecodeError(
            f"the key class {name} is now a {type(found).__name__}. Give the class its old name."
        )
    return found


def loaded_class(name: str) -> type:
    """The class of a declared name, if this program has it: nothing is imported for it, and no code runs.

    Raises KeyDecodeError.
    """
    module_name, _, qualified = name.partition(":")
    if module_name == _main_module:
        module_name = "__main__"
    found: Any = sys.modules.get(module_name)
    for part in qualified.split("."):
        # A module or class that looks names up by code of its own (lazy modules, metaclasses) is not asked.
        members = object.__getattribute__(found, "__dict__") if isinstance(found, types.ModuleType) else {}
        if isinstance(found, type):
            members = type.__getattribute__(found, "__dict__")
        found = members.get(part)
    if not isinstance(found, type) or declared_name(found) != declared_name_of(module_name, qualified):
        raise KeyDecodeError(
            f"this program has no class {name}: import the module that defines it, and keep its name."
        )
    return found


class RowKey:
    """The canonical form of a Row: field names (None when unnamed) and canonical values; immutable."""

    __slots__ = ("_hash", "names", "values")

    names: tuple[str, ...] | None
    values: tuple[Any, ...]

    def __init__(self, names: tuple[str, ...] | None, values: tuple[Any, ...]) -> None:
        if names is not None and len(names) != len(values):
            raise ValueError(f"a Row key has {len(names)} names for {len(values)} values")
        self.names = names
        self.values = values
        self._hash = hash((names, values))  # that of the Row, so that a raw Row finds its key in a dict

    def __eq__(self, other: object) -> bool:
        if type(other) is RowKey:
            return self.names == other.names and self.values == other.values
        if isinstance(other, Row):
            return self.names == own_names(other) and self.values == tuple(other._values)
        return NotImplemented

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        if self.names is None:
            return f"<Row({', '.join(map(repr, self.values))})>"
        return f"Row({', '.join(f'{n}={v!r}' for n, v in zip(self.names, self.values, strict=True))})"


class RecordPlan(NamedTuple):
    """The plan of a frozen dataclass as a key: the stored name, the compared fields, and defaults for the others."""

    cls: type
    name: str
    fields: tuple[str, ...]
    uncompared: tuple[dataclasses.Field[Any], ...]

    def rebuild(self, values: list[Any]) -> Any:
        """An instance with these compared fields.

        The other fields take their defaults, and __post_init__ is not run.
        """
        made: Any = object.__new__(self.cls)
        for name, value in zip(self.fields, values, strict=True):
            object.__setattr__(made, name, value)
        for field in self.uncompared:
            default: Any = field.default
            if default is dataclasses.MISSING:
                make: Any = field.default_factory
                default = make()
            object.__setattr__(made, field.name, default)
        return made


_record_plans: Final[dict[type, RecordPlan]] = {}
_DATACLASS_FILE: Final = "<string>"  # where the standard library says its generated methods come from


def record_plan(cls: type) -> RecordPlan:
    """The plan of a dataclass, made once.

    Raises UnsupportedKeyError when its equality is not that of its fields.
    """
    plan = _record_plans.get(cls)
    if plan is None:
        plan = _make_plan(cls)
        _record_plans[cls] = plan
    return plan


def _make_plan(cls: type) -> RecordPlan:
    params: Any = cls.__dataclass_params__  # type: ignore[attr-defined]
    if not params.frozen:
        raise UnsupportedKeyError(
            cls,
            "it is a dataclass that can change",
            "Declare the class @dataclass(frozen=True) or key by a tuple of its fields",
        )
    code = getattr(cls.__eq__, "__code__", None)
    if code is None or code.co_filename != _DATACLASS_FILE:
        raise UnsupportedKeyError(
            cls,
            "its equality is not that of its fields",
            "Let the dataclass define __eq__, or key by a tuple",
        )
    refuse_local(cls)
    fields = dataclasses.fields(cls)
    uncompared = tuple(f for f in fields if not f.compare)
    for field in uncompared:
        if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise UnsupportedKeyError(
                cls,
                f"its field '{field.name}' is not compared and so not stored, and has no default to be "
                f"restored with",
                "Give the field a default or key by a tuple of the compared fields",
            )
    return RecordPlan(cls, declared_name(cls), tuple(f.name for f in fields if f.compare), uncompared)


def refuse_local(cls: type) -> None:
    """Raise UnsupportedKeyError for a class inside a function.

    No other process could find such a class by its name.
    """
    if "<locals>" in cls.__qualname__:
        raise UnsupportedKeyError(
            cls,
            "it is defined inside a function and has no name to be found by",
            "Move the class to module level",
        )


def restore_record(name: str, items: list[tuple[str, Any]]) -> Any:
    """The instance of a stored dataclass key.

    Raises KeyDecodeError when the class is gone or its fields changed.
    """
    cls = resolve_class(name)
    if not dataclasses.is_dataclass(cls):
        raise KeyDecodeError(
            f"the key class {name} is no dataclass any more. Restore with the class it was stored from."
        )
    try:
        plan = record_plan(cls)
    except UnsupportedKeyError as error:
        raise KeyDecodeError(f"the key class {name} has changed: {error}") from error
    stored = tuple(item[0] for item in items)
    if stored != plan.fields:
        raise KeyDecodeError(
            f"the key class {name} was stored with fields {list(stored)} and now has {list(plan.fields)}: it "
            f"would be "
            "another key. Restore with the old fields."
        )
    return plan.rebuild([item[1] for item in items])


def restore_member(name: str, member: str) -> enum.Enum:
    """The member of a stored Enum key. Raises KeyDecodeError when the class or the member is gone."""
    cls = resolve_class(name)
    if not issubclass(cls, enum.Enum):
        raise KeyDecodeError(
            f"the key class {name} is no Enum any more. Restore with the class it was stored from."
        )
    found = cls.__members__.get(member)
    if found is None:
        raise KeyDecodeError(f"the Enum {name} has no member {member} any more. Put the member back.")
    return found
