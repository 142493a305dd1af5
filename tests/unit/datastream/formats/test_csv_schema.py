"""CsvSchema: which columns it has, and what its characters mean where files are read and written."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import run
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.file_system import FileSource
from yarrow.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema, CsvSchemaBuilder


def two_texts() -> CsvSchemaBuilder:
    return CsvSchema.builder().add_string_column("a").add_string_column("b")


def read(schema: CsvSchema, folder: Path, text: str, columnar: bool = False) -> list[tuple[Any, ...]]:
    """The rows of a file with this text."""
    (folder / "rows.csv").write_text(text, newline="")
    csv_format = CsvReaderFormat.for_schema(schema, columnar)
    rows = run(FileSource.for_record_stream_format(csv_format, str(folder / "rows.csv")).build())
    return [tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in rows]


def written(schema: CsvSchema, *rows: tuple[Any, ...]) -> str:
    stream = io.BytesIO()
    writer = CsvBulkWriters.for_schema(schema).create(stream)
    for row in rows:
        writer.add_element(row)
    writer.finish()
    return stream.getvalue().decode()


def test_columns_are_added_counted_and_cleared() -> None:
    first = two_texts()
    assert first.size() == 2
    more = CsvSchema.builder().add_number_column("n", Types.INT()).add_columns_from(first.build())
    schema = more.build()
    assert schema.size() == more.size() == 3
    assert schema.row_type == Types.ROW_NAMED(["n", "a", "b"], [Types.INT(), Types.STRING(), Types.STRING()])
    assert more.clear_columns().size() == 0
    assert more.add_boolean_column("only").build().size() == 1
    assert schema.size() == 3, "a schema is a value"


@pytest.mark.parametrize("columnar", [False, True])
def test_quotes_are_another_character_or_mean_nothing(tmp_path: Path, columnar: bool) -> None:
    single = two_texts().set_quote_char("'").build()
    assert written(single, ("x,y", 'say "z"')) == "'x,y',say \"z\"\n"
    assert read(single, tmp_path, "'x,y',say \"z\"\n", columnar) == [("x,y", 'say "z"')]
    none = two_texts().disable_quote_char().build()
    assert read(none, tmp_path, '"x",y"\n', columnar) == [('"x"', 'y"')]


@pytest.mark.parametrize("columnar", [False, True])
def test_an_escape_takes_the_meaning_from_a_separator(tmp_path: Path, columnar: bool) -> None:
    escaped = two_texts().disable_quote_char().set_escape_char("\\").build()
    assert written(escaped, ("x,y", "z")) == "x\\,y,z\n"
    assert read(escaped, tmp_path, "x\\,y,z\n", columnar) == [("x,y", "z")]
    plain = two_texts().set_escape_char("\\").disable_escape_char().build()
    assert read(plain, tmp_path, "x\\,y\n", columnar) == [("x\\", "y")]


def test_the_line_end_is_one_of_two(tmp_path: Path) -> None:
    schema = two_texts().set_line_separator("\r\n").build()
    assert written(schema, ("x", "y"), ("z", "")) == "x,y\r\nz,\r\n"
    assert read(schema, tmp_path, "x,y\r\nz,\r\n") == [("x", "y"), ("z", "")]
    assert read(schema, tmp_path, "x,y\nz,\n") == [("x", "y"), ("z", "")]
    with pytest.raises(ValueError, match=r"line separator must be \\n or \\r\\n"):
        two_texts().set_line_separator("|")


def test_elements_of_arrays_stand_between_their_separator(tmp_path: Path) -> None:
    def arrays() -> CsvSchemaBuilder:
        return CsvSchema.builder().add_array_column("a").add_array_column("b", element_type=Types.INT())

    changed = arrays().set_array_element_separator("/").build()
    assert written(changed, (["x;y", "z"], [1, 2])) == "x;y/z,1/2\n"
    assert read(changed, tmp_path, "x;y/z,1/2\n") == [(["x;y", "z"], [1, 2])]
    none = arrays().disable_array_element_separator().build()
    assert read(none, tmp_path, "x;y,12\n") == [(["x;y"], [12])]


@pytest.mark.differs(
    "CsvSchemaBuilder.add_array_column",
    "CsvSchemaBuilder.set_array_element_separator",
    told="counts as the column's own",
)
def test_a_separator_of_a_column_counts_more_than_that_of_the_schema_in_any_order(tmp_path: Path) -> None:
    def separators(builder: CsvSchemaBuilder) -> list[str | None]:
        return [each.separator for each in builder.build().columns]

    before = CsvSchema.builder().add_array_column("own", "|").add_array_column("plain")
    before.set_array_element_separator("/")
    assert separators(before) == ["|", "/"]
    assert separators(before.add_array_column("later").add_array_column("semicolon", ";")) == [
        "|",
        "/",
        "/",
        ";",
    ]
    assert read(before.build(), tmp_path, "a|b/c,a|b/c,d/e,d;e/f\n") == [
        (["a", "b/c"], ["a|b", "c"], ["d", "e"], ["d", "e/f"])
    ]
    # A column that loses its own separator has the schema's, and the last one of the schema counts.
    assert separators(before.remove_array_element_separator(0)) == ["/", "/", "/", ";"]
    assert separators(before.set_array_element_separator("-")) == ["-", "-", "-", ";"]
    assert separators(before.disable_array_element_separator()) == ["", "", "", ";"]


@pytest.mark.differs("CsvSchemaBuilder.add_columns_from", told="counts as the column's own")
def test_columns_of_another_schema_keep_a_separator_of_their_own_alone() -> None:
    def taken_over(schema: CsvSchema) -> CsvSchemaBuilder:
        return CsvSchema.builder().add_columns_from(schema)

    def separators(builder: CsvSchemaBuilder) -> list[str | None]:
        return [each.separator for each in builder.build().columns]

    arrays = (
        CsvSchema.builder().add_string_column("text").add_array_column("own", "|").add_array_column("plain")
    )
    slashes = arrays.set_array_element_separator("/").build()
    for schema in (slashes, pickle.loads(pickle.dumps(slashes)), taken_over(slashes).build()):
        assert separators(taken_over(schema)) == [None, "|", ";"]
        assert separators(taken_over(schema).set_array_element_separator("-")) == [None, "|", "-"]
        assert separators(taken_over(schema).disable_array_element_separator()) == [None, "|", ""]


def test_schemas_that_are_read_alike_are_equal_whoever_gave_the_separator() -> None:
    default = CsvSchema.builder().add_array_column("a").build()
    own = CsvSchema.builder().add_array_column("a", ";").build()
    assert default == own and hash(default) == hash(own) and str(default) == str(own)


def test_columns_that_are_no_arrays_have_no_separator(tmp_path: Path) -> None:
    schema = two_texts().set_array_element_separator("/").remove_array_element_separator(1).build()
    assert read(schema, tmp_path, "x/y,z\n") == [("x/y", "z")]
