"""Texts of .proto files compiled with what they import, and texts that cannot be."""

from __future__ import annotations

import sys
import tempfile

import pytest

from yarrow.datastream.formats.registry.errors import CompilerUnavailableError
from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.runtime.common.errors import InvalidProgramError

SALE = """
syntax = "proto3";
package shop;
import "people/user.proto";
import "google/protobuf/timestamp.proto";
message Sale { message Item { int32 count = 1; } map<string, Item> items = 3; User by = 1;
  google.protobuf.Timestamp at = 2; }
message Last {}
"""
USER = 'syntax = "proto3"; package shop; message User { string name = 1; }'


def test_messages_are_found_by_their_path() -> None:
    compiled = CompiledSchema.of(SALE, {"people/user.proto": USER})
    sale = compiled.message((0,))
    assert sale.message_name == "shop.Sale"
    assert compiled.message((0, 0)).message_name == "shop.Sale.Item"
    assert compiled.message((1,)).message_name == "shop.Last"
    content = sale.message_class(by={"name": "ann"}).SerializeToString()
    assert sale.message_class.FromString(content).by.name == "ann"


@pytest.mark.parametrize("path", [(2,), (1, 0), (0, 0, 0)])
def test_a_path_without_a_message_is_told(path: tuple[int, ...]) -> None:
    with pytest.raises(InvalidProgramError, match="no message at the message indexes"):
        CompiledSchema.of(SALE, {"people/user.proto": USER}).message(path)


@pytest.mark.parametrize(
    ("text", "referred", "problem"),
    [
        ("message {", {}, "does not compile the schema: line 1"),
        (SALE, {}, "people/user.proto: File not found"),
        (SALE, {"../user.proto": USER}, "imports '../user.proto'"),
        (SALE, {"/tmp/user.proto": USER}, "imports '/tmp/user.proto'"),
    ],
)
def test_texts_that_are_no_schema_are_refused(text: str, referred: dict[str, str], problem: str) -> None:
    with pytest.raises(InvalidProgramError, match=problem):
        CompiledSchema.of(text, referred)


@pytest.mark.parametrize("program", ["/bin/false", "/nowhere/python"])
def test_a_compiler_that_does_not_run_is_no_fault_of_a_schema(
    monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    """Otherwise a source would leave out every message, or send it to the dead letters."""
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(CompilerUnavailableError, match=f"{program}.* Repair"):
        CompiledSchema.of(USER)


def test_a_folder_that_cannot_be_written_is_no_fault_of_a_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere")
    with pytest.raises(CompilerUnavailableError, match=r"/nowhere.* folder for temporary files"):
        CompiledSchema.of(USER)
