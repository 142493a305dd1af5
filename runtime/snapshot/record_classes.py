"""User classes in state: their stored form, and how instances of a changed class are restored.

A class is known by its qualified name and its fields. The fields' annotations are stored too, so that a
changed declaration is noticed. Owner: the calling thread; no state. It must not run user code except defaults
of new fields: no constructor, no property, no __setattr__.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, ForwardRef, NamedTuple

from yarrow.runtime.data.errors import KeyDecodeError
from yarrow.runtime.data.key_classes import declared_name, resolve_class
from yarrow.runtime.data.plain_classes import fields_of_plain_class

#: Forms of instances: their attributes, their positions, members by name.
OBJECT: Final = "object"
NAMED_TUPLE: Final = "tuple"
ENUM: Final = "enum"

#: Annotations with the same meaning in every program.
_SIMPLE: Final = frozenset(("bool", "int", "float", "str", "bytes"))
_WIDER: Final[dict[tuple[str, str], Callable[[Any], Any]]] = {
    ("int", "float"): lambda value: float(value) if type(value) is int else value,
    ("bool", "int"): lambda value: int(value) if type(value) is bool else value,
}
_new: Final = object.__new__
_set: Final = object.__setattr__


class UnwritableClassError(Exception):
    """Instances of a class cannot be written by their fields; the message says why."""


class ChangedFieldError(Exception):
    """A class declares a field differently now; the serializer adds operator and state."""

    def __init__(self, field: str, was: str, now: str, remedy: str) -> None:
        super().__init__(f"field {field}: was {was}, is {now}. {remedy}")
        self.field = field
        self.was = was
        self.now = now
        self.remedy = remedy


class StoredClass(NamedTuple):
    """The stored description of a class, once for each run of values."""

    form: str
    name: str
    #: Names of the attributes or positions, in the order of the values.
    fields: list[str]
    #: The annotation of each as text; None for an undeclared attribute.
    annotations: list[str | None]


class WritableClass(NamedTuple):
    """How instances of a class are written."""

    cls: type
    form: str
    name: str
    slots: tuple[str, ...]
    has_dict: bool
    annotations: dict[str, str]


def special_name(names: Iterable[str]) -> str:
    """The first attribute name that is no field: of the form `__x__`, or no text; empty if there is none.

    Libraries trust such attributes of instances: numpy reads memory at the address in `__array_interface__`.
    """
    return next((repr(name) for name in names if type(name) is not str or name[:2] == "__" == name[-2:]), "")


def refuse_special_names(stored: StoredClass) -> None:
    """Raises ValueError for instances with an attribute that no writer stores."""
    name = special_name(stored.fields)
    if name:
        raise ValueError(f"instances of {stored.name} with an attribute {name}, which is no field")


def writable_class(cls: type) -> WritableClass | None:
    """How instances of `cls` are written; None if only pickle can write them.

    Raises UnwritableClassError for a class that no other process would find by its name.
    """
    slots: tuple[str, ...] = ()
    has_dict = False
    if issubclass(cls, enum.Enum):
        form = ENUM
    elif issubclass(cls, tuple) and hasattr(cls, "_fields") and not cls.__dictoffset__:
        form, slots = NAMED_TUPLE, tuple(cls._fields)
    else:
        names = fields_of_plain_class(cls)
        if names is None:
            return None
        form, slots, has_dict = OBJECT, tuple(names[0]), names[1]
    name = declared_name(cls)
    _check_found(cls, name)
    return WritableClass(cls, form, name, slots, has_dict, annotations_of(cls))


def _check_found(cls: type, name: str) -> None:
    if "<locals>" in cls.__qualname__:
        raise UnwritableClassError("it is defined inside a function: move the class to module level")
    try:
        found = resolve_class(name)
    except KeyDecodeError as error:
        raise UnwritableClassError(f"its class is not found by its name ({error.__cause__})") from error
    if found is not cls:
        raise UnwritableClassError("another class has its name: give each class a name of its own")


def annotations_of(cls: type) -> dict[str, str]:
    """The declared fields of a dataclass or NamedTuple with their annotations as text."""
    if dataclasses.is_dataclass(cls):
        return {field.name: _text(field.type) for field in dataclasses.fields(cls)}
    if issubclass(cls, tuple):
        declared = getattr(cls, "__annotations__", {})
        return {name: _text(declared.get(name, "")) for name in getattr(cls, "_fields", ())}
    return {}


def _text(annotation: Any) -> str:
    if isinstance(annotation, ForwardRef):  # NamedTuple's form of an annotation that is a text
        return annotation.__forward_arg__
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)


def restorer_of(
    stored: StoredClass, resolve: Callable[[str], type] = resolve_class
) -> Callable[[Sequence[Any]], Any]:
    """Makes instances of the present class from stored values; `resolve` finds the class by its name.

    Raises ChangedFieldError for a change without a conversion.
    """
    cls = _resolved(stored, resolve)
    if stored.form == ENUM:
        return _members_of(cls)
    steps = _steps(cls, stored)
    if stored.form == NAMED_TUPLE:
        return _named_tuples_of(cls, steps)
    return _objects_of(cls, steps)


def class_now(stored: StoredClass, resolve: Callable[[str], type] = resolve_class) -> type | None:
    """The class of stored instances if it is unchanged; None if it has changed.

    Raises ChangedFieldError if it is missing, or of another kind.
    """
    cls = _resolved(stored, resolve)
    present = annotations_of(cls)
    same = [present.get(name) for name in stored.fields] == stored.annotations
    return cls if same and present.keys() <= set(stored.fields) else None


def _resolved(stored: StoredClass, resolve: Callable[[str], type]) -> type:
    try:
        cls = resolve(stored.name)
    except KeyDecodeError as error:
        raise ChangedFieldError(
            "", f"values of class {stored.name}", f"no such class ({error.__cause__ or error})",
            "Ship the module that defines the class, or give the class its old name and module.",
        ) from error  # fmt: skip
    now = writable_class(cls)
    if now is None or now.form != stored.form:
        raise ChangedFieldError(
            "", f"values of class {stored.name} by {stored.form}", "a class of another kind",
            "Declare the class as it was when the snapshot was taken.",
        )  # fmt: skip
    return cls


class _Steps(NamedTuple):
    """How the values of the present fields follow from the stored ones."""

    #: (name, position among the written values, conversion or None)
    kept: list[tuple[str, int, Callable[[Any], Any] | None]]
    #: (name, maker of the default)
    added: list[tuple[str, Callable[[], Any]]]


def _steps(cls: type, stored: StoredClass) -> _Steps:
    present = annotations_of(cls)
    kept = []
    for position, (name, was) in enumerate(zip(stored.fields, stored.annotations, strict=True)):
        now = present.get(name)
        if now is None and was is not None:
            continue  # a declared field that was removed
        kept.append(
            (name, position, None if was is None or now is None else _conversion(stored, name, was, now))
        )
    missing = [name for name in present if name not in stored.fields]
    return _Steps(kept, [(name, _default(cls, stored, name, present[name])) for name in missing])


def _conversion(stored: StoredClass, field: str, was: str, now: str) -> Callable[[Any], Any] | None:
    if was == now or was not in _SIMPLE or now not in _SIMPLE:
        return None  # the meaning of other annotations is unknown: the values pass unchanged
    wider = _WIDER.get((was, now))
    if wider is None:
        raise ChangedFieldError(
            f"{stored.name}.{field}",
            was,
            now,
            "Only int -> float and bool -> int are converted. Add the field under a new name with a default,"
            " and fill it from the old one in the function.",
        )
    return wider


def _default(cls: Any, stored: StoredClass, field: str, now: str) -> Callable[[], Any]:
    if stored.form == NAMED_TUPLE:
        if field in cls._field_defaults:
            default = cls._field_defaults[field]
            return lambda: default
    else:
        declared = next(f for f in dataclasses.fields(cls) if f.name == field)
        if declared.default is not dataclasses.MISSING:
            return lambda: declared.default
        if declared.default_factory is not dataclasses.MISSING:
            return declared.default_factory
    raise ChangedFieldError(
        f"{stored.name}.{field}",
        "no such field",
        now,
        "Give the new field a default, which old values then have.",
    )


def _members_of(cls: Any) -> Callable[[Sequence[Any]], Any]:
    def member(values: Sequence[Any]) -> Any:
        name, value = values
        if name is None:
            return cls(value)
        try:
            return cls[name]
        except KeyError:
            raise ChangedFieldError(
                f"{cls.__qualname__}.{name}", "a member", "no such member", "Put the member back."
            ) from None

    return member


def _named_tuples_of(cls: Any, steps: _Steps) -> Callable[[Sequence[Any]], Any]:
    source = {name: (position, convert) for name, position, convert in steps.kept}
    added = dict(steps.added)
    plan = [source[name] if name in source else added[name] for name in cls._fields]

    def named_tuple(values: Sequence[Any]) -> Any:
        items = []
        for step in plan:
            if not isinstance(step, tuple):
                items.append(step())
            else:
                value = values[step[0]]
                items.append(value if step[1] is None else step[1](value))
        return tuple.__new__(cls, items)

    return named_tuple


def _objects_of(cls: type, steps: _Steps) -> Callable[[Sequence[Any]], Any]:
    slots, has_dict = fields_of_plain_class(cls) or ([], False)
    in_slots = frozenset(slots)

    def instance(values: Sequence[Any]) -> Any:
        made: Any = _new(cls)
        fields = {
            name: values[position] if convert is None else convert(values[position])
            for name, position, convert in steps.kept
        }
        for name, default in steps.added:
            fields[name] = default()
        if in_slots:
            for name in in_slots.intersection(fields):
                _set(made, name, fields.pop(name))
        # Bypasses properties and other descriptors of the class, which are code.
        if has_dict:
            made.__dict__.update(fields)
        elif fields:
            raise ValueError(f"{cls.__qualname__} has no place for {', '.join(fields)}")
        return made

    return instance
