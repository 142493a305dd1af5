"""Protobuf's rules for two messages: why the reader's cannot read the writer's, and which fields only the writer has.

Owner: any thread; pure. Fields are the same if their numbers are. Source of the rules: "Updating A Message Type" of
Protobuf's documentation. The two do not fit where the library would cut a number, or keep one of several values. They
do not fit either where it would take a type with other bytes as an unknown field. Must not read messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from yarrow.datastream.formats.protobuf.fields import (
    BOOL,
    BYTES,
    DOUBLE,
    ENUM,
    FLOAT,
    GROUP,
    MESSAGE,
    RANGES,
    STRING,
    is_map,
    is_message,
    is_repeated,
)

#: Types of `descriptor.proto` by name.
_NAMES: Final = {
    DOUBLE: "double", FLOAT: "float", 3: "int64", 4: "uint64", 5: "int32", 6: "fixed64", 7: "fixed32", BOOL: "bool",
    STRING: "string", GROUP: "group", MESSAGE: "message", BYTES: "bytes", 13: "uint32", ENUM: "enum", 15: "sfixed32",
    16: "sfixed64", 17: "sint32", 18: "sint64",
}  # fmt: skip
#: Types whose values have the same bytes; an enum is written as a whole number of 32 bits.
_ALIKE: Final = (frozenset({3, 4, 5, 13, BOOL, ENUM}), frozenset({17, 18}), frozenset({STRING, BYTES}))
_RANGES: Final = {**RANGES, BOOL: (0, 1), ENUM: (-(2**31), 2**31 - 1)}


def fault_of(written: Any, declared: Any) -> str | None:
    """Return why messages of a writer's descriptor cannot be read by another, with the path of the field.

    None = they can.
    """
    if written.name != declared.name:
        return f"the writer's message is {written.full_name}, and the reader's {declared.full_name}"
    return _message_fault(written, declared, "", set())


def new_fields(written: Any, declared: Any) -> list[str]:
    """Return the paths of the fields whose numbers only the writer's message has."""
    return list(_new_fields(written, declared, "", set()))


def own_fields(written: Any, declared: Any) -> list[str]:
    """Return the names of the fields of the writer's message itself whose numbers and names the reader's lacks."""
    return [
        field.name
        for field in written.fields
        if field.number not in declared.fields_by_number and field.name not in declared.fields_by_name
    ]


def _message_fault(written: Any, declared: Any, path: str, seen: set[tuple[str, str]]) -> str | None:
    pair = written.full_name, declared.full_name
    if pair in seen:
        return None
    seen.add(pair)
    for field in declared.fields:
        inner = f"{path}.{field.name}" if path else field.name
        known = written.fields_by_number.get(field.number)
        if known is None:
            if _is_required(field):
                return _fault(inner, field, "the writer's schema lacks it, and the reader's requires it")
            continue
        fault = _field_fault(known, field, inner, seen)
        if fault is not None:
            return fault
    return next(filter(None, (_oneof_fault(written, oneof, path) for oneof in declared.oneofs)), None)


def _oneof_fault(written: Any, oneof: Any, path: str) -> str | None:
    """Why a reader would keep only one of several fields of a message; None = the writer sets one at most."""
    # The oneof of an `optional` field has no other field, so it is never a fault.
    known = [field for field in oneof.fields if field.number in written.fields_by_number]
    places = {_oneof_name(written.fields_by_number[field.number]) for field in known}
    if len(known) < 2 or (len(places) == 1 and None not in places):
        return None
    inner = f"{path}.{oneof.name}" if path else oneof.name
    shown = ", ".join(f"{field.name!r} (number {field.number})" for field in known)
    return f"oneof {inner!r}: the writer may set several of the fields {shown}, and the reader keeps only one"


def _oneof_name(field: Any) -> str | None:
    return None if field.containing_oneof is None else field.containing_oneof.name


def _field_fault(written: Any, declared: Any, path: str, seen: set[tuple[str, str]]) -> str | None:
    if is_repeated(written) and not is_repeated(declared):
        return _fault(path, declared, f"the writer's {_shown(written)} is repeated, and the reader's is not")
    if is_message(written) and is_message(declared):
        if is_map(written) != is_map(declared) or (written.type == GROUP) != (declared.type == GROUP):
            return _fault(path, declared, _no_reading(written, declared))
        return _message_fault(written.message_type, declared.message_type, path, seen)
    if written.type == declared.type:
        return None
    alike = any({written.type, declared.type} <= types for types in _ALIKE)
    if not alike or not _holds(declared.type, written.type):
        return _fault(path, declared, _no_reading(written, declared))
    return None


def _holds(declared: int, written: int) -> bool:
    """Whether each number of the writer's type is one of the reader's."""
    if written not in _RANGES or declared == ENUM:
        # A number that an enum does not know is told when it comes.
        return written not in _RANGES or _holds(5, written)
    (least, most), (low, high) = _RANGES[declared], _RANGES[written]
    return bool(least <= low and high <= most)


def _new_fields(written: Any, declared: Any, path: str, seen: set[tuple[str, str]]) -> Iterator[str]:
    pair = written.full_name, declared.full_name
    if pair in seen:
        return
    seen.add(pair)
    for field in written.fields:
        inner = f"{path}.{field.name}" if path else field.name
        known = declared.fields_by_number.get(field.number)
        if known is None:
            yield inner
        elif is_message(field) and is_message(known):
            yield from _new_fields(field.message_type, known.message_type, inner, seen)


def _is_required(field: Any) -> bool:
    told = getattr(field, "is_required", None)
    return bool(field.label == field.LABEL_REQUIRED if told is None else told)


def _no_reading(written: Any, declared: Any) -> str:
    return f"the writer's {_shown(written)} cannot be read as {_shown(declared)}"


def _shown(field: Any) -> str:
    if is_map(field):
        return "map"
    name = _NAMES[field.type]
    if is_message(field):
        return f"{name} {field.message_type.full_name}"
    return f"enum {field.enum_type.full_name}" if field.type == ENUM else name


def _fault(path: str, field: Any, problem: str) -> str:
    return f"field {path!r} (number {field.number}): {problem}"
