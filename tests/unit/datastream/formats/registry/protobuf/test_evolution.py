"""Which writers' messages a reader can read: each allowed pair of types is tried with the library's own bytes."""

from __future__ import annotations

from functools import cache
from itertools import product
from typing import Any

import pytest

from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.datastream.formats.registry.protobuf.evolution import fault_of, new_fields, own_fields

WHOLE = {
    "int32": (-(2**31), 2**31 - 1), "sint32": (-(2**31), 2**31 - 1), "sfixed32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1), "sint64": (-(2**63), 2**63 - 1), "sfixed64": (-(2**63), 2**63 - 1),
    "uint32": (0, 2**32 - 1), "fixed32": (0, 2**32 - 1), "uint64": (0, 2**64 - 1), "fixed64": (0, 2**64 - 1),
}  # fmt: skip
VALUES: dict[str, tuple[Any, ...]] = {
    **{name: (*ends, 1) for name, ends in WHOLE.items()},
    "bool": (False, True),
    "E": (0, 5),
    "double": (0.1, -2.0),
    "float": (0.5, -2.0),
    "string": ("a", "ä"),
    "bytes": (b"a", "ä".encode()),
}
SINGLE = [f"{name} x = 1;" for name in VALUES]
_BOTH = ["int32 x = 1; int32 y = 2;", "optional int32 x = 1; optional int32 y = 2;"]
_APART = ["oneof o { int32 x = 1; } int32 y = 2;", "oneof o { int32 x = 1; } oneof p { int32 y = 2; }"]
_TOGETHER = "oneof o { int32 x = 1; int32 y = 2; }"
_WITH_A_THIRD = "oneof q { int32 x = 1; int32 y = 2; string z = 3; }"
_ONE = "oneof o { int32 x = 1; string z = 3; }"
_WITHIN = "message I { int32 x = 1; int32 y = 2; } I in = 1;"
_WITHIN_TOGETHER = "message I { oneof o { int32 x = 1; int32 y = 2; } } I in = 1;"
OTHERS = [
    "",
    "repeated int64 x = 1;",
    "repeated int64 x = 1 [packed = false];",
    "string y = 1;",
    "string x = 2;",
    "A x = 1;",
    "B x = 1;",
    "map<string, int32> x = 1;",
    "map<string, int64> x = 1;",
    "map<string, string> x = 1;",
    "M x = 1;",
    "M x = 1; int32 more = 2;",
    *_BOTH,
    *_APART,
    _TOGETHER,
    _WITH_A_THIRD,
    _ONE,
    _WITHIN,
    _WITHIN_TOGETHER,
]


@cache
def messages() -> dict[str, Any]:
    """The classes of all forms, each as the message M."""
    forms = [*SINGLE, *OTHERS]
    text = "".join(f"message In{place} {{ message M {{ {form} }} }}\n" for place, form in enumerate(forms))
    parts = (
        "enum E { NONE = 0; FIVE = 5; } message A { int32 a = 1; } message B { int64 a = 1; string b = 2; }"
    )
    compiled = CompiledSchema.of(f'syntax = "proto3";\n{text}{parts}')
    return {form: compiled.message((place, 0)).message_class for place, form in enumerate(forms)}


def fault(written: str, declared: str) -> str | None:
    made = messages()
    return fault_of(made[written].DESCRIPTOR, made[declared].DESCRIPTOR)


def test_each_allowed_pair_of_types_keeps_every_value() -> None:
    allowed = set()
    for written, declared in product(VALUES, VALUES):
        if fault(f"{written} x = 1;", f"{declared} x = 1;") is not None:
            continue
        allowed.add((written, declared))
        for value in VALUES[written]:
            writer = messages()[f"{written} x = 1;"](x=value)
            found = messages()[f"{declared} x = 1;"].FromString(writer.SerializeToString()).x
            told = found.decode() if isinstance(found, bytes) and isinstance(value, str) else found
            assert told == (value.decode() if isinstance(told, str) and isinstance(value, bytes) else value)
    assert allowed == {(name, name) for name in VALUES} | {
        ("int32", "int64"), ("int32", "E"), ("sint32", "sint64"), ("uint32", "int64"), ("uint32", "uint64"),
        ("bool", "int32"), ("bool", "int64"), ("bool", "uint32"), ("bool", "uint64"), ("bool", "E"),
        ("E", "int32"), ("E", "int64"), ("string", "bytes"), ("bytes", "string"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("written", "declared"),
    [
        ("", "int32 x = 1;"),
        ("int64 x = 1;", "string x = 2;"),
        ("string x = 1;", "string y = 1;"),
        ("int64 x = 1;", "repeated int64 x = 1;"),
        ("repeated int64 x = 1 [packed = false];", "repeated int64 x = 1;"),
        ("A x = 1;", "B x = 1;"),
        ("map<string, int32> x = 1;", "map<string, int64> x = 1;"),
        ("M x = 1; int32 more = 2;", "M x = 1;"),
        *product(_BOTH, [*_BOTH, *_APART, _ONE]),
        *product(_APART, [*_BOTH, *_APART, _ONE]),
        *product([_TOGETHER, _WITH_A_THIRD], [*_BOTH, *_APART, _TOGETHER, _WITH_A_THIRD, _ONE]),
        (_ONE, _WITH_A_THIRD),
        (_WITHIN_TOGETHER, _WITHIN),
    ],
)
def test_what_can_be_read(written: str, declared: str) -> None:
    assert fault(written, declared) is None


@pytest.mark.parametrize(
    ("written", "declared", "problem"),
    [
        (
            "string x = 1;",
            "int64 x = 1;",
            "field 'x' (number 1): the writer's string cannot be read as int64",
        ),
        ("repeated int64 x = 1;", "int64 x = 1;", "field 'x' (number 1): the writer's int64 is repeated"),
        ("B x = 1;", "A x = 1;", "field 'x.a' (number 1): the writer's int64 cannot be read as int32"),
        (
            "B x = 1;",
            "string x = 1;",
            "field 'x' (number 1): the writer's message B cannot be read as string",
        ),
        ("E x = 1;", "bool x = 1;", "field 'x' (number 1): the writer's enum E cannot be read as bool"),
        ("map<string, string> x = 1;", "map<string, int64> x = 1;", "field 'x.value' (number 2)"),
    ],
)
def test_what_cannot_be_read_names_the_field(written: str, declared: str, problem: str) -> None:
    found = fault(written, declared)
    assert found is not None and found.startswith(problem)


@pytest.mark.parametrize("written", [*_BOTH, *_APART])
@pytest.mark.parametrize("declared", [_TOGETHER, _WITH_A_THIRD])
def test_fields_moved_together_into_a_oneof_are_refused(written: str, declared: str) -> None:
    both = messages()[written](x=1, y=2).SerializeToString()
    kept = messages()[declared].FromString(both)
    assert (kept.x, kept.y) == (0, 2)
    found = fault(written, declared)
    assert found is not None and "may set several of the fields 'x' (number 1), 'y' (number 2)" in found


def test_the_oneof_of_a_message_within_is_named() -> None:
    found = fault(_WITHIN, _WITHIN_TOGETHER)
    assert found is not None and found.startswith("oneof 'in.o': the writer may set several")


def test_messages_of_another_name_are_refused() -> None:
    compiled = CompiledSchema.of('syntax = "proto3"; package shop; message A {} message B {}')
    found = [compiled.message((place,)).message_class.DESCRIPTOR for place in (0, 1)]
    assert fault_of(*found) == "the writer's message is shop.A, and the reader's shop.B"


def test_a_required_field_must_be_written() -> None:
    compiled = CompiledSchema.of(
        'syntax = "proto2"; message W { message M {} } message R { message M { required int32 x = 1; } }'
    )
    found = [compiled.message((place, 0)).message_class.DESCRIPTOR for place in (0, 1)]
    assert (
        fault_of(*found) == "field 'x' (number 1): the writer's schema lacks it, and the reader's requires it"
    )


def test_fields_of_the_writer_alone() -> None:
    made = messages()
    inner, outer = made["B x = 1;"].DESCRIPTOR, made["A x = 1;"].DESCRIPTOR
    assert new_fields(inner, outer) == ["x.b"] and own_fields(inner, outer) == []
    more, less = made["M x = 1; int32 more = 2;"].DESCRIPTOR, made["M x = 1;"].DESCRIPTOR
    assert new_fields(more, less) == ["more"] and own_fields(more, less) == ["more"]
    assert new_fields(less, more) == []
