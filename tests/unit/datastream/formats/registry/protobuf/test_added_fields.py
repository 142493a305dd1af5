"""Fields that only a writer's message has, which readers of dicts add."""

from __future__ import annotations

import pytest

from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.datastream.formats.registry.protobuf.messages import added_fields
from yarrow.runtime.common.errors import InvalidProgramError

_WRITER = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message M {
  int32 id = 1;
  N note = 2;
  google.protobuf.Struct parts = 3;
  map<string, Tree> trees = 4;
  M next = 5;
}
message N { string text = 1; }
message Tree { repeated Tree branches = 1; }
"""


def test_added_fields_are_read() -> None:
    written = CompiledSchema.of(_WRITER).message((0,))
    message = written.message_class(id=1, note={"text": "x"}).SerializeToString()
    row = added_fields(written, ["note"]).deserialize(message)
    assert row.as_dict(recursive=True) == {"note": {"text": "x"}}


@pytest.mark.parametrize("name", ["parts", "trees", "next"])
def test_a_field_whose_messages_contain_themselves_is_refused_by_its_name(name: str) -> None:
    written = CompiledSchema.of(_WRITER).message((0,))
    with pytest.raises(
        InvalidProgramError, match=f"field '{name}' cannot be added .* take evolution=\"keep\""
    ):
        added_fields(written, ["note", name])
