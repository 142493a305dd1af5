"""Letters as columns and back: nothing of a letter is lost, and files that others have written anew are read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.runtime.graph.programs import environment
from yarrow.cli.letter_replay.letter_table_input import LetterTableInput
from yarrow.client.errors import CommandError
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.dead_letter_table.letter_columns import (
    ADDED_COLUMNS,
    LETTER_COLUMNS,
    batch_of_letters,
    letters_of_batch,
)
from yarrow.datastream.connectors.dead_letter_table.letter_table_format import LetterTableFormat
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_format import FileSourceSplit
from yarrow.runtime.config.settings import Settings

TEXTS = st.text(max_size=5)
LONGS = st.integers(-(2**63), 2**63 - 1)
LETTERS = st.builds(
    DeadLetter,
    split=TEXTS,
    position=LONGS,
    raw=st.none() | st.binary(max_size=5),
    error=TEXTS,
    traceback=TEXTS,
    operator=TEXTS,
    key=st.none() | st.binary(max_size=5),
    timestamp=st.none() | LONGS,
    headers=st.lists(st.tuples(TEXTS, st.none() | st.binary(max_size=3)), max_size=3).map(tuple),
    encoding=TEXTS,
    input=st.integers(0, 1),
    schema_id=st.none() | st.integers(0, 2**31),
    record_type=TEXTS,
    places=st.lists(st.integers(0, 9), max_size=3).map(tuple),
    system=TEXTS,
    error_class=TEXTS,
    failed_at=st.none() | LONGS,
    row_times=st.lists(st.none() | LONGS, max_size=2).map(tuple),
    steps=st.lists(TEXTS, max_size=2).map(tuple),
    rows=st.none() | st.binary(max_size=5),
    match_time=st.none() | LONGS,
    timed_out=st.booleans(),
)


@given(st.lists(LETTERS, max_size=4))
def test_letters_come_back(letters: list[DeadLetter]) -> None:
    assert letters_of_batch(batch_of_letters(letters)) == letters


def test_an_error_may_quote_text_that_utf_8_cannot_hold() -> None:
    letter = DeadLetter("f", 1, b"x", "no \ud800")
    assert letters_of_batch(batch_of_letters([letter])) == [letter._replace(error="no \\ud800")]


def test_each_field_of_a_letter_is_a_column() -> None:
    assert sorted(LETTER_COLUMNS.names) == sorted(DeadLetter._fields)
    row = batch_of_letters([DeadLetter("", -1, b"row", "bad")]).to_pylist()[0]
    assert {name for name, value in row.items() if value is None} == {
        "system",
        "split",
        "position",
        "record_type",
        "key",
        "timestamp",
        "schema_id",
        "failed_at",
        "rows",
        "match_time",
        "timed_out",
    }


def test_files_of_other_writers_are_read(tmp_path: Path) -> None:
    letter = DeadLetter("f", 3, b"\x00", "bad", timestamp=5, headers=(("h", None),), places=(0,), failed_at=7)
    table = pa.Table.from_batches([batch_of_letters([letter])])
    for unit in ("us", "ns"):
        for name in ("timestamp", "failed_at"):
            place = table.schema.get_field_index(name)
            naive = table.column(name).cast(pa.timestamp("ms")).cast(pa.timestamp(unit))
            table = table.set_column(place, name, naive)
        # Another order of columns, and one more.
        names = [*reversed(table.schema.names)]
        path = str(tmp_path / unit)
        pq.write_table(table.select(names).append_column("more", pa.array([1])), path)
        size = Path(path).stat().st_size
        reader = LetterTableFormat().create_reader(FileSourceSplit(path, path, 0, size, size))
        found = reader.read(10)
        assert found is not None and found.rows == [letter]
        reader.close()


def test_files_of_earlier_versions_are_read(tmp_path: Path) -> None:
    letter = DeadLetter("", -1, b"x", "no", operator="parse", headers=(("a", b"b"),), places=(1,))
    rows = pa.Table.from_batches([batch_of_letters([letter])])
    part = tmp_path / "day=2026-11-30" / "part-0"
    part.parent.mkdir()
    config = Settings({}, "the test")
    # Each version has added some.
    for first in range(len(ADDED_COLUMNS)):
        pq.write_table(rows.drop_columns([*ADDED_COLUMNS[first:]]), part)
        assert [each.letter for each in LetterTableInput(str(tmp_path), config).letters()] == [letter]
    # The table takes further letters.
    environment(1).from_collection([letter]).sink_to(DeadLetterTable(str(tmp_path)))
    pq.write_table(rows.drop_columns(["places"]), part)
    with pytest.raises(CommandError, match=r"the columns \['places'\] are not among"):
        list(LetterTableInput(str(tmp_path), config).letters())
