"""Schemas that are descriptors in base64: what they import, where their messages stand, and what is refused."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import type_pb2
from hypothesis import given
from hypothesis import strategies as st

from yarrow.datastream.formats.protobuf.message_type import ProtobufType
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.datastream.formats.registry.protobuf.descriptors import (
    described_file,
    encoded_file,
    file_of,
    indexes_in,
    needed_references,
)
from yarrow.runtime.common.errors import InvalidProgramError

USER = 'syntax = "proto3"; package shop; message User { string name = 1; }'
SALE = """syntax = "proto3"; package shop; import "user.proto"; import "google/protobuf/type.proto";
message Sale { User by = 1; google.protobuf.Type kind = 2; message Item { int32 count = 1; } }"""


def in_base64() -> tuple[str, dict[str, str]]:
    """The schema and its import as descriptors."""
    sale = file_of(CompiledSchema.of(SALE, {"user.proto": USER}).message((0,)))
    return encoded_file(sale), {"user.proto": encoded_file(file_of(CompiledSchema.of(USER).message((0,))))}


def test_a_descriptor_is_read_with_what_it_imports() -> None:
    text, referred = in_base64()
    compiled = CompiledSchema.of(text, referred)
    made = compiled.message((0,)).message_class
    content = made(by={"name": "ann"}, kind={"name": "t"}).SerializeToString()
    found = made.FromString(content)
    assert (found.by.name, found.kind.name) == ("ann", "t")
    assert compiled.message((0, 0)).message_name == "shop.Sale.Item"
    assert compiled.indexes_of("shop.Sale.Item") == (0, 0)


def test_both_forms_in_one_schema_are_refused() -> None:
    text, referred = in_base64()
    with pytest.raises(InvalidProgramError, match=r"imports user.proto, which is text"):
        CompiledSchema.of(text, {"user.proto": USER})
    with pytest.raises(InvalidProgramError, match="protoc does not compile"):
        CompiledSchema.of(SALE, referred)
    with pytest.raises(InvalidProgramError, match=r"imports user.proto, which is none of its references"):
        CompiledSchema.of(text)


@given(st.binary(min_size=1, max_size=20))
def test_base64_of_something_else_is_a_file_or_refused(content: bytes) -> None:
    text = base64.b64encode(content).decode()
    try:
        file = described_file(text, "main.proto")
    except InvalidProgramError as error:
        assert "neither a .proto file nor a descriptor" in str(error)
    else:
        assert file.name == "main.proto"


@pytest.mark.parametrize("text", [USER, 'syntax="proto3";', "message M{}", ""])
def test_texts_are_no_descriptors(text: str) -> None:
    assert described_file(text, "main.proto") is None


def test_messages_of_a_generated_class_stand_in_their_file() -> None:
    file = file_of(ProtobufType.of_class(type_pb2.Enum))
    assert file.name == "google/protobuf/type.proto"
    assert indexes_in(file, "google.protobuf.Enum") == (2,)
    assert needed_references(file) == []
    with pytest.raises(InvalidProgramError, match=r"no message 'Enum'; it has google.protobuf.Type"):
        indexes_in(file, "Enum")


def test_imports_that_only_a_registry_has_are_named() -> None:
    assert needed_references(file_of(CompiledSchema.of(SALE, {"user.proto": USER}).message((0,)))) == [
        "user.proto"
    ]
