"""Protobuf messages as rows: bytes of the protobuf library read, rows written for it, exact values, misfits."""

from __future__ import annotations

import importlib
import math
import pickle
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, duration_pb2, text_format, timestamp_pb2, type_pb2, wrappers_pb2
from hypothesis import given
from hypothesis import strategies as st

from yarrow.common.time import Instant
from yarrow.common.typeinfo import RowTypeInfo, Types
from yarrow.common.types import Row
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.file_format import FileFormatError
from yarrow.datastream.connectors.kafka.reading.record_deserialization import row_maker
from yarrow.datastream.formats.protobuf.messages import (
    ProtobufRowDeserializationSchema,
    ProtobufRowSerializationSchema,
    ProtobufType,
)
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

#: The number of each type of a field in descriptors.
NUMBERS = {
    "double": 1, "float": 2, "int64": 3, "uint64": 4, "int32": 5, "fixed64": 6, "fixed32": 7, "bool": 8, "string": 9,
    "bytes": 12, "uint32": 13, "sfixed32": 15, "sfixed64": 16, "sint32": 17, "sint64": 18,
}  # fmt: skip
BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())


def field(name: str, number: int, kind: str, *settings: str) -> str:
    """A field in the text form of descriptors; a kind with a dot is a message, one with a colon an enum."""
    named = f'type_name: "{kind.removeprefix(":")}"'
    form = f"type: {NUMBERS[kind]}" if kind in NUMBERS else f"type: {14 if kind[0] == ':' else 11} {named}"
    label = "" if any("label" in setting for setting in settings) else "label: LABEL_OPTIONAL"
    return f'field {{ name: "{name}" number: {number} {form} {label} {" ".join(settings)} }}'


def entry(name: str, key: str, value: str) -> str:
    parts = field("key", 1, key) + field("value", 2, value)
    return f'nested_type {{ name: "{name}" {parts} options {{ map_entry: true }} }}'


REPEATED = "label: LABEL_REPEATED"
SCALARS = " ".join(field(f"f_{kind}", number, kind) for number, kind in enumerate(NUMBERS, 1))
FILE = f"""
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto" dependency: "google/protobuf/wrappers.proto"
dependency: "google/protobuf/duration.proto"
enum_type {{ name: "Size" value {{ name: "SMALL" number: 0 }} value {{ name: "LARGE" number: 5 }} }}
message_type {{ name: "Scalars" {SCALARS} }}
message_type {{ name: "Item" {field("name", 1, "string")} {field("count", 2, "int32")} }}
message_type {{ name: "Order"
  {field("id", 1, "int64")}
  {field("note", 2, "string", "proto3_optional: true", "oneof_index: 1")}
  {field("size", 3, ":.shop.Size")}
  {field("item", 4, ".shop.Item")}
  {field("items", 5, ".shop.Item", REPEATED)}
  {field("marks", 6, "sint32", REPEATED)}
  {field("prices", 7, ".shop.Order.PricesEntry", REPEATED)}
  {field("by_place", 8, ".shop.Order.ByPlaceEntry", REPEATED)}
  {field("card", 9, "string", "oneof_index: 0")}
  {field("cash", 10, "uint32", "oneof_index: 0")}
  {field("at", 11, ".google.protobuf.Timestamp")}
  {field("weight", 12, ".google.protobuf.UInt64Value")}
  {field("took", 13, ".google.protobuf.Duration")}
  {field("sizes", 14, ":.shop.Size", REPEATED)}
  {entry("PricesEntry", "string", "double")} {entry("ByPlaceEntry", "int32", ".shop.Item")}
  oneof_decl {{ name: "paid" }} oneof_decl {{ name: "_note" }} }}
message_type {{ name: "Tree" {field("name", 1, "string")} {field("children", 2, ".shop.Tree", REPEATED)} }}
"""
OLDER_FILE = f"""
name: "older.proto" package: "older" syntax: "proto2"
enum_type {{ name: "Color" value {{ name: "RED" number: 1 }} value {{ name: "BLUE" number: 2 }} }}
message_type {{ name: "Event" {field("id", 1, "int32", "label: LABEL_REQUIRED")} {field("text", 2, "string")}
  {field("color", 3, ":.older.Color")} }}
enum_type {{ name: "Level" value {{ name: "LOW" number: 0 }} value {{ name: "HIGH" number: 2 }} }}
message_type {{ name: "Levels"
  {field("level", 1, ":.older.Level")} {field("levels", 2, ":.older.Level", REPEATED)}
  {field("by_name", 3, ".older.Levels.ByNameEntry", REPEATED)} {field("event", 4, ".older.Event")}
  {entry("ByNameEntry", "string", ":.older.Level")} }}
"""


def descriptors() -> bytes:
    """A descriptor set, as protoc writes it with the files imported."""
    files = descriptor_pb2.FileDescriptorSet()
    for module in (timestamp_pb2, wrappers_pb2, duration_pb2):
        files.file.add().ParseFromString(module.DESCRIPTOR.serialized_pb)
    for text in (FILE, OLDER_FILE):
        text_format.Parse(text, files.file.add())
    return bytes(files.SerializeToString())


def type_of(name: str) -> ProtobufType:
    return ProtobufType.of_descriptor_set(descriptors(), name)


ORDER = type_of("shop.Order")
NOTHING: dict[str, Any] = {
    "id": 0, "note": None, "size": "SMALL", "item": None, "items": [], "marks": [], "prices": {}, "by_place": {},
    "card": None, "cash": None, "at": None, "weight": None, "took": None, "sizes": [],
}  # fmt: skip


def read(message_type: ProtobufType, content: bytes, type_info: RowTypeInfo | None = None) -> dict[str, Any]:
    schema = pickle.loads(pickle.dumps(ProtobufRowDeserializationSchema(message_type, type_info)))
    return dict(schema.deserialize(content).as_dict(recursive=True))


def write(message_type: ProtobufType, row: Any, type_info: RowTypeInfo | None = None) -> bytes:
    return bytes(
        pickle.loads(pickle.dumps(ProtobufRowSerializationSchema(message_type, type_info))).serialize(row)
    )


def part(number: int, message: Any) -> bytes:
    """A field of that number with a message as its value."""
    content: bytes = message.SerializeToString()
    return bytes([number * 8 + 2, len(content)]) + content


# ------------------------------------------------------------------ bytes of another writer


def order_of_the_library() -> Any:
    """A message with every field, made by the protobuf library."""
    message = ORDER.message_class(
        id=-7, note="", size=5, marks=[-1, 0, 2**31 - 1], prices={"a": 1.5}, cash=2**32 - 1, sizes=[0, 5]
    )
    message.item.name = "lamp"
    message.items.add(name="cup", count=2)
    message.items.add()
    message.by_place[-3].count = 4
    message.at.seconds, message.at.nanos = -1, 999_999_999
    message.weight.value = 2**64 - 1
    message.took.seconds = 3
    return message


FULL = {
    "id": -7, "note": "", "size": "LARGE", "item": {"name": "lamp", "count": 0},
    "items": [{"name": "cup", "count": 2}, {"name": "", "count": 0}], "marks": [-1, 0, 2**31 - 1], "prices": {"a": 1.5},
    "by_place": {-3: {"name": "", "count": 4}}, "card": None, "cash": 2**32 - 1, "at": Instant(-1, 999_999_999),
    "weight": 2**64 - 1, "took": {"seconds": 3, "nanos": 0}, "sizes": ["SMALL", "LARGE"],
}  # fmt: skip


def test_a_message_of_the_library_is_read() -> None:
    assert read(ORDER, order_of_the_library().SerializeToString()) == FULL


def test_the_library_reads_a_row_that_was_written() -> None:
    row = ProtobufRowDeserializationSchema(ORDER).deserialize(order_of_the_library().SerializeToString())
    assert ORDER.message_class.FromString(write(ORDER, row)) == order_of_the_library()


def test_bytes_are_those_of_the_wire_format() -> None:
    # A key is the field's number times 8 plus the wire type; 150 is the varint 96 01; sint32 -1 is zigzag 1.
    content = bytes.fromhex("0896011203616263180532020102")
    wanted = NOTHING | {"id": 150, "note": "abc", "size": "LARGE", "marks": [-1, 1]}
    assert read(ORDER, content) == wanted
    assert write(ORDER, Row(**wanted)) == content


def test_absent_fields_are_none_where_a_message_tells_them_from_defaults() -> None:
    assert read(ORDER, b"") == NOTHING
    assert write(ORDER, Row(**NOTHING)) == b""
    assert read(ORDER, bytes.fromhex("120050002200")) == NOTHING | {
        "note": "", "cash": 0, "item": {"name": "", "count": 0},
    }  # fmt: skip


def test_a_generated_class_is_a_type() -> None:
    schema = ProtobufRowDeserializationSchema(ProtobufType.of_class(type_pb2.Field))
    message = type_pb2.Field(kind=type_pb2.Field.TYPE_INT64, number=3, name="n", packed=True)
    message.options.add(name="o").value.value = b"\xff"
    row = pickle.loads(pickle.dumps(schema)).deserialize(message.SerializeToString())
    assert (row.kind, row.number, row.name, row.packed) == ("TYPE_INT64", 3, "n", True)
    assert row.options[0].as_dict(recursive=True) == {
        "name": "o",
        "value": {"type_url": "", "value": b"\xff"},
    }


def test_a_type_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "shop.desc"
    file.write_bytes(descriptors())
    assert read(ProtobufType.of_file(str(file), "shop.Item"), bytes.fromhex("1003")) == {
        "name": "",
        "count": 3,
    }


# ------------------------------------------------------------------ written and read


def whole(least: int, most: int) -> st.SearchStrategy[int]:
    return st.integers(least, most) | st.sampled_from([least, most])


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SIGNED_32, SIGNED_64 = whole(-(2**31), 2**31 - 1), whole(-(2**63), 2**63 - 1)
UNSIGNED_32, UNSIGNED_64 = whole(0, 2**32 - 1), whole(0, 2**64 - 1)
DOUBLES = st.floats(allow_nan=False)
OF_SCALARS = {
    "double": DOUBLES, "float": st.floats(width=32, allow_nan=False), "int64": SIGNED_64, "uint64": UNSIGNED_64,
    "int32": SIGNED_32, "fixed64": UNSIGNED_64, "fixed32": UNSIGNED_32, "bool": st.booleans(), "string": TEXT,
    "bytes": st.binary(max_size=8), "uint32": UNSIGNED_32, "sfixed32": SIGNED_32, "sfixed64": SIGNED_64,
    "sint32": SIGNED_32, "sint64": SIGNED_64,
}  # fmt: skip
SCALAR = type_of("shop.Scalars")
SCALAR_READER, SCALAR_WRITER = (
    ProtobufRowDeserializationSchema(SCALAR),
    ProtobufRowSerializationSchema(SCALAR),
)
ORDER_READER, ORDER_WRITER = ProtobufRowDeserializationSchema(ORDER), ProtobufRowSerializationSchema(ORDER)


@given(st.fixed_dictionaries({f"f_{kind}": values for kind, values in OF_SCALARS.items()}))
def test_scalars_written_are_scalars_read(values: dict[str, Any]) -> None:
    content = SCALAR_WRITER.serialize(Row(**values))
    assert SCALAR_READER.deserialize(content).as_dict() == values
    of_the_library = SCALAR.message_class(**values).SerializeToString()
    assert SCALAR_READER.deserialize(of_the_library).as_dict() == values


ITEMS = st.builds(lambda name, count: Row(name=name, count=count), TEXT, SIGNED_32)
SIZES = st.sampled_from(["SMALL", "LARGE"])
INSTANTS = st.builds(Instant, st.integers(-62135596800, 253402300799), st.integers(0, 999_999_999))
ORDERS = st.builds(
    lambda row, paid: Row(**row | {paid[0]: paid[1]}),
    st.fixed_dictionaries(
        {
            "id": SIGNED_64, "note": st.none() | TEXT, "size": SIZES, "item": st.none() | ITEMS,
            "items": st.lists(ITEMS, max_size=3), "marks": st.lists(SIGNED_32, max_size=3),
            "prices": st.dictionaries(TEXT, DOUBLES, max_size=3),
            "by_place": st.dictionaries(SIGNED_32, ITEMS, max_size=3), "card": st.none(), "cash": st.none(),
            "at": st.none() | INSTANTS, "weight": st.none() | UNSIGNED_64, "took": st.none(),
            "sizes": st.lists(SIZES, max_size=3),
        }
    ),
    st.tuples(st.just("card"), st.none() | TEXT) | st.tuples(st.just("cash"), UNSIGNED_32),
)  # fmt: skip


@given(ORDERS)
def test_orders_written_are_orders_read(row: Row) -> None:
    assert ORDER_READER.deserialize(ORDER_WRITER.serialize(row)).as_dict() == row.as_dict()


def test_a_declared_type_chooses_fields_and_types() -> None:
    declared = Types.ROW_NAMED(
        ["sizes", "at", "weight", "items", "id"],
        [
            Types.LIST(Types.INT()),
            Types.SQL_TIMESTAMP(),
            Types.LONG(),
            Types.LIST(Types.ROW_NAMED(["count"], [Types.LONG()])),
            Types.BIG_INT(),
        ],
    )
    message = ORDER.message_class(id=1, sizes=[5, 77], items=[{"name": "cup", "count": 3}])
    message.at.FromDatetime(datetime(2024, 2, 29, 10, 0, 0, 1))
    row = {
        "sizes": [5, 77],
        "at": datetime(2024, 2, 29, 10, 0, 0, 1),
        "weight": None,
        "items": [{"count": 3}],
        "id": 1,
    }
    assert read(ORDER, message.SerializeToString(), declared) == row
    assert read(ORDER, write(ORDER, row | {"items": [Row(count=3)]}, declared), declared) == row


@pytest.mark.parametrize(
    "at",
    [
        datetime(2024, 2, 29, 8, 0, tzinfo=UTC),
        datetime(2024, 2, 29, 10, 0, tzinfo=timezone(timedelta(hours=2))),
        datetime(2024, 2, 29, 8, 0),
    ],
)
def test_a_time_is_written_in_utc(at: datetime) -> None:
    assert read(ORDER, write(ORDER, Row(**NOTHING | {"at": at})))["at"] == Instant(1709193600, 0)


def test_a_message_that_contains_itself_needs_a_declared_type() -> None:
    tree = type_of("shop.Tree")
    with pytest.raises(InvalidProgramError, match=r"shop\.Tree contains itself .* give type_info"):
        ProtobufRowDeserializationSchema(tree)
    declared = Types.ROW_NAMED(["children"], [Types.LIST(Types.ROW_NAMED(["name"], [Types.STRING()]))])
    content = write(tree, Row(children=[Row(name="a")]), declared)
    assert read(tree, content, declared) == {"children": [{"name": "a"}]}


# ------------------------------------------------------------------ what does not fit

MISFITS: list[tuple[dict[str, Any], str]] = [
    (
        {"id": 2**63},
        r"field 'id': a whole number from -9223372036854775808 to 9223372036854775807 is expected",
    ),
    ({"id": True}, r"field 'id': a whole number .* is expected, not True"),
    ({"id": 1.0}, r"field 'id': a whole number .* is expected, not 1\.0"),
    ({"cash": -1}, r"field 'cash': a whole number from 0 to 4294967295 is expected, not -1"),
    ({"note": b"x"}, r"field 'note': a text is expected, not b'x'"),
    ({"note": "\ud800"}, r"field 'note': 'utf-8' codec"),
    ({"size": "HUGE"}, r"field 'size': 'HUGE' is no value of the enum shop\.Size: \['SMALL', 'LARGE'\]"),
    ({"item": Row(name="a", count="b")}, r"field 'item': field 'count': a whole number"),
    ({"item": Row(1, 2, 3)}, r"field 'item': .* has 3 fields, the declared type 2"),
    ({"item": 7}, r"field 'item': a Row, tuple, list or dict .* is expected, not 7"),
    ({"items": 7}, r"field 'items': a list is expected, not 7"),
    ({"marks": [1, None]}, r"field 'marks': a list of a message cannot hold None"),
    ({"prices": {"a": None}}, r"field 'prices': a map of a message cannot hold None"),
    ({"prices": {1: 1.0}}, r"field 'prices': a text is expected, not 1"),
    ({"prices": {"a": 2**60}}, r"field 'prices': a float is expected, not"),
    ({"prices": []}, r"field 'prices': a dict is expected"),
    ({"card": "x", "cash": 1}, r"of the oneof 'paid' one field may have a value, not \['card', 'cash'\]"),
    ({"at": 5}, r"field 'at': an Instant or a datetime is expected, not 5"),
    ({"weight": -1}, r"field 'weight': a whole number from 0 to 18446744073709551615"),
]


@pytest.mark.parametrize(("values", "error"), MISFITS)
def test_a_value_that_does_not_fit_is_not_written(values: dict[str, Any], error: str) -> None:
    with pytest.raises(FileFormatError, match=rf"is no shop\.Order: {error}"):
        ORDER_WRITER.serialize(Row(**NOTHING | values))


def test_a_float_too_large_is_not_written() -> None:
    with pytest.raises(FileFormatError, match=r"field 'f_float': 1e\+39 is too large for a float of 32 bits"):
        write(SCALAR, {"f_float": 1e39})
    assert read(SCALAR, write(SCALAR, {"f_float": math.inf}))["f_float"] == math.inf
    rounded = struct.unpack("<f", struct.pack("<f", 0.1))[0]
    assert read(SCALAR, write(SCALAR, {"f_float": 0.1}))["f_float"] == rounded


def test_a_required_field_must_have_a_value() -> None:
    event = type_of("older.Event")
    assert read(event, write(event, Row(id=1, text=None, color="BLUE"))) == {
        "id": 1,
        "text": None,
        "color": "BLUE",
    }
    with pytest.raises(FileFormatError, match="required fields are None: id"):
        write(event, Row(id=None, text="x", color=None))
    with pytest.raises(FileFormatError, match=r"field 'color': 7 is no value of the enum older\.Color"):
        write(event, Row(id=1, text=None, color=7))
    with pytest.raises(FileFormatError, match=r"is no older\.Event of the declared type: .*id"):
        read(event, b"")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\x08", r"a message of 1 bytes is no shop\.Order of the declared type: .*b'\\x08'"),
        (b"\x12\x01\xff", r"no shop\.Order of the declared type"),
        (b"\x18\x09", r"field 'size': 9 is no value of the enum shop\.Size; declare Types\.INT\(\)"),
        (b"\x5a\x02\x10\xff", r"no shop\.Order"),
        (part(11, timestamp_pb2.Timestamp(nanos=-1)), r"field 'at': nanos of an Instant must be"),
    ],
)  # fmt: skip
def test_a_message_that_does_not_fit_is_an_error(content: bytes, error: str) -> None:
    with pytest.raises(FileFormatError, match=error):
        ORDER_READER.deserialize(content)


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\x08\x63", "field 'level': its enum has no value for 99"),
        (b"\x10\x02\x10\x63\x10\x00", "field 'levels': its enum has no value for 99"),
        (b"\x1a\x05\x0a\x01\x61\x10\x63", "field 'by_name': its enum has no value for an entry"),
        (b"\x22\x04\x08\x01\x18\x63", "field 'event': field 'color': its enum has no value for 99"),
    ],
)
def test_a_number_that_a_closed_enum_does_not_know_is_an_error(content: bytes, error: str) -> None:
    event = Types.ROW_NAMED(["color"], [Types.INT()])
    kinds = [Types.INT(), Types.LIST(Types.STRING()), Types.MAP(Types.STRING(), Types.INT()), event]
    row = Types.ROW_NAMED(["level", "levels", "by_name", "event"], kinds)
    with pytest.raises(FileFormatError, match=error):
        read(type_of("older.Levels"), content, row)
    # A field that no descriptor has is left out, as by every reader of Protobuf.
    known = b"\x08\x02\x10\x00\x1a\x05\x0a\x01\x61\x10\x02\x3a\x01\x78"
    found = read(type_of("older.Levels"), known, row)
    assert found == {"level": 2, "levels": ["LOW"], "by_name": {"a": 2}, "event": None}


def test_lost_precision_is_refused() -> None:
    declared = Types.ROW_NAMED(["at", "weight"], [Types.SQL_TIMESTAMP(), Types.LONG()])
    fine = part(11, timestamp_pb2.Timestamp(seconds=1, nanos=1))
    with pytest.raises(FileFormatError, match=r"field 'at': 1 nanoseconds are .* declare Types\.INSTANT\(\)"):
        read(ORDER, fine, declared)
    late = part(11, timestamp_pb2.Timestamp(seconds=2**60))
    with pytest.raises(FileFormatError, match=r"field 'at': .* outside the years 1 to 9999"):
        read(ORDER, late, declared)
    large = part(12, wrappers_pb2.UInt64Value(value=2**63))
    with pytest.raises(FileFormatError, match=r"field 'weight': 9223372036854775808 is no LONG; .*BIG_INT"):
        read(ORDER, large, declared)


def test_a_bad_message_of_a_topic_costs_itself_alone() -> None:
    made = row_maker(ORDER_READER, ErrorPolicy.SKIP).make(
        "t-0", [b"\x08\x01", b"\x08", b"\x08\x02"], [1, 2, 3], [0, 1, 2]
    )
    assert ([row.id for row in made.rows], made.num_errors) == ([1, 2], 1)


@pytest.mark.parametrize(
    ("name", "declared", "error"),
    [
        (
            "id",
            Types.INT(),
            "the field shop.Order.id of a Protobuf message cannot be Integer; declare LONG or BIG_INT",
        ),
        ("note", BYTES, "declare STRING"),
        ("size", Types.LONG(), "declare STRING or INT"),
        ("item", Types.STRING(), "declare ROW_NAMED"),
        ("marks", Types.INT(), "declare a LIST"),
        ("marks", Types.LIST(Types.STRING()), "declare INT or LONG or BIG_INT"),
        ("prices", Types.LIST(Types.STRING()), "declare a MAP"),
        ("at", Types.LONG(), "declare INSTANT or SQL_TIMESTAMP"),
        ("nothing", Types.LONG(), "the message shop.Order has no field 'nothing'; it has ['id', 'note'"),
    ],
)
def test_a_type_that_does_not_fit_is_refused(name: str, declared: Any, error: str) -> None:
    for schema in (ProtobufRowDeserializationSchema, ProtobufRowSerializationSchema):
        with pytest.raises(InvalidProgramError) as failed:
            schema(ORDER, Types.ROW_NAMED([name], [declared]))
        assert error in str(failed.value)


def test_descriptors_that_do_not_fit_are_refused() -> None:
    with pytest.raises(
        InvalidProgramError, match=r"no message 'Order' among .*'shop\.Order'.*with the package"
    ):
        type_of("Order")
    with pytest.raises(InvalidProgramError, match=r"3 bytes are no descriptor set; make one with protoc"):
        ProtobufType.of_descriptor_set(b"\xff\xff\xff", "shop.Order")
    with pytest.raises(
        InvalidProgramError, match=r"a class that protoc has generated is expected, not <class 'dict'>"
    ):
        ProtobufType.of_class(dict)
    alone = descriptor_pb2.FileDescriptorSet()
    text_format.Parse(FILE, alone.file.add())
    with pytest.raises(InvalidProgramError, match=r"not complete; make them with --include_imports"):
        ProtobufType.of_descriptor_set(alone.SerializeToString(), "shop.Order")


def test_without_the_library_the_program_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(name: str) -> Any:
        raise ModuleNotFoundError(f"No module named {name!r}")

    monkeypatch.setattr(importlib, "import_module", refuse)
    makers: list[Callable[[], ProtobufType]] = [
        lambda: ProtobufType.of_class(type_pb2.Field),
        lambda: ProtobufType.of_file(str(tmp_path / "shop.desc"), "shop.Order"),
        lambda: ProtobufType.of_descriptor_set(b"", "shop.Order"),
    ]
    for make in makers:
        with pytest.raises(UnsupportedFeatureError, match=r"pip install 'yarrow\[protobuf\]'"):
            make()
