"""Files that schemas import without a reference, compared with the descriptors that others have of them.

Confluent's files are in its client, and Google's files are in the package googleapis-common-protos.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2

from yarrow.datastream.formats.registry.protobuf.compiler import CompiledSchema
from yarrow.datastream.formats.registry.protobuf.descriptors import encoded_file, file_of, needed_references
from yarrow.datastream.formats.registry.protobuf.known_files import KNOWN_FILES

PRICED = """
syntax = "proto3";
package shop;
import "confluent/meta.proto";
import "confluent/types/decimal.proto";
message Priced {
  option (confluent.message_meta).doc = "what is sold";
  int64 id = 1 [(confluent.field_meta) = { tags: "PII", params: [{ key: "from", value: "shop" }] }];
  confluent.type.Decimal price = 2 [(confluent.field_meta).params = { key: "scale", value: "2" }];
}
"""


def theirs(name: str) -> Any:
    """The descriptor of a file in confluent-kafka, or in Google's package."""
    module = name.removesuffix(".proto").replace("/", ".")
    if name.startswith("confluent/"):
        module = f"confluent_kafka.schema_registry.{module}"
    found = descriptor_pb2.FileDescriptorProto()
    import_module(f"{module}_pb2").DESCRIPTOR.CopyToProto(found)
    return found


def ours(name: str) -> Any:
    file = CompiledSchema.of(f'syntax = "proto3"; import "{name}"; message M {{}}')
    return file.message((0,)).files()[name]


@pytest.mark.parametrize("name", KNOWN_FILES)
def test_known_files_are_those_of_others(name: str) -> None:
    expected, found = theirs(name), ours(name)
    for file in (expected, found):
        # Neither says anything of messages.
        file.ClearField("options")
        kinds = [kind for message in file.message_type for kind in (message, *message.nested_type)]
        for field in (*file.extension, *(field for kind in kinds for field in kind.field)):
            field.ClearField("json_name")
    assert found == expected


def test_a_schema_imports_them_as_text_and_as_descriptor() -> None:
    compiled = CompiledSchema.of(PRICED)
    made = compiled.message((0,)).message_class
    content = made(id=1, price={"value": b"\x04\xd2", "precision": 4, "scale": 2}).SerializeToString()
    file = file_of(compiled.message((0,)))
    assert needed_references(file) == []
    again = CompiledSchema.of(encoded_file(file)).message((0,)).message_class.FromString(content)
    assert (again.id, again.price.value, again.price.precision, again.price.scale) == (1, b"\x04\xd2", 4, 2)


def test_every_file_of_google_is_known() -> None:
    folder = Path(import_module("google.type.date_pb2").__file__ or "").parent
    theirs = {f"google/type/{path.name}" for path in folder.glob("*.proto")}
    assert theirs and theirs <= KNOWN_FILES.keys()


def test_types_of_google_are_read_and_need_no_reference() -> None:
    text = """
        syntax = "proto3";
        import "google/type/money.proto";
        import "google/type/datetime.proto";
        message Paid { google.type.Money price = 1; google.type.DateTime at = 2; }
    """
    compiled = CompiledSchema.of(text)
    made = compiled.message((0,)).message_class
    at = {"year": 2026, "month": 11, "time_zone": {"id": "Europe/Berlin"}}
    paid = made(price={"currency_code": "EUR", "units": -3, "nanos": -750_000_000}, at=at)
    file = file_of(compiled.message((0,)))
    assert needed_references(file) == []
    again = (
        CompiledSchema.of(encoded_file(file)).message((0,)).message_class.FromString(paid.SerializeToString())
    )
    assert (again.price.units, again.price.nanos, again.at.time_zone.id) == (
        -3,
        -750_000_000,
        "Europe/Berlin",
    )
    assert again.at.WhichOneof("time_offset") == "time_zone"


def test_a_reference_takes_the_place_of_a_known_file() -> None:
    own = 'syntax = "proto3"; package confluent.type; message Decimal { string text = 1; }'
    text = 'syntax = "proto3"; import "confluent/type/decimal.proto"; message M { confluent.type.Decimal price = 1; }'
    made = CompiledSchema.of(text, {"confluent/type/decimal.proto": own}).message((0,)).message_class
    assert made(price={"text": "1.5"}).price.text == "1.5"
