"""LettersSource: rows of the letters of one operator, each once over restores, and letters refused again."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from tests.unit.datastream.connectors.harness import SourceHarness, run_with_restores
from yarrow.common import SimpleStringSchema
from yarrow.common.typeinfo import Types
from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.connectors.dead_letters import (
    DEAD_LETTERS,
    RECORD_PICKLED,
    RECORD_SHOWN,
    RECORD_TYPED,
    DeadLetter,
)
from yarrow.datastream.connectors.file_source import FileSource
from yarrow.datastream.connectors.kafka.reading.record_deserialization import letter_reader
from yarrow.datastream.connectors.letter_replay.letter_rows import LetterNotReadError
from yarrow.datastream.connectors.letter_replay.letters_source import (
    REPLAYED_LETTERS,
    LettersSource,
    LetterTarget,
)
from yarrow.datastream.connectors.letter_replay.silent_source import SilentSource
from yarrow.datastream.connectors.stream_format import StreamFormat
from yarrow.datastream.formats.csv import CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.runtime.data.serializers.serializers import serializer_for

LONG = Types.LONG()


def typed(number: int, uid: str = "parse", **fields: Any) -> DeadLetter:
    raw = serializer_for(LONG).dump_rows([number])
    return DeadLetter("", -1, raw, "no", operator=uid, encoding=RECORD_TYPED, record_type=str(LONG), **fields)


def letters_of(tmp_path: Path, *letters: DeadLetter) -> Source[Any, Any]:
    path = tmp_path / "letters"
    path.write_text("".join(letter.to_json() + "\n" for letter in letters))
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()


def numbers_in(harness: SourceHarness) -> list[Any]:
    return [value for tag, value in harness.side if tag == REPLAYED_LETTERS]


def test_letters_of_one_operator_and_input_are_its_rows_with_their_times(tmp_path: Path) -> None:
    lines = letters_of(
        tmp_path, typed(1, timestamp=7), typed(2, "other"), typed(3, input=1), typed(4), typed(5)
    )
    source = LettersSource(lines, LetterTarget("parse", 0, LONG.to_spec()))
    harness = SourceHarness(source)
    found = harness.poll()
    assert found is not None and harness.run() == [1, 4, 5]
    assert found.timestamps == [7, None, None]  # type: ignore[union-attr]
    assert numbers_in(harness) == [("parse", 3, 0, 0)]
    harness.close()


def test_each_letter_comes_once_over_restores(tmp_path: Path) -> None:
    lines = letters_of(tmp_path, *(typed(number) for number in range(500)))
    source = LettersSource(lines, LetterTarget("parse", 0, LONG.to_spec()))
    assert run_with_restores(source, 1, max_rows=7, polls=3) == list(range(500))


def test_letters_that_hold_text_alone_are_counted(tmp_path: Path) -> None:
    shown = DeadLetter("", -1, b"<x>", "no", operator="parse", encoding=RECORD_SHOWN)
    harness = SourceHarness(
        LettersSource(letters_of(tmp_path, shown, typed(1)), LetterTarget("parse", 0, LONG.to_spec()))
    )
    assert harness.run() == [1] and numbers_in(harness) == [("parse", 1, 0, 1)]
    harness.close()


def test_pickles_are_read_for_those_who_trust_them_alone(tmp_path: Path) -> None:
    pickled = serializer_for(None).dump_rows([{"a": 1}])
    letter = DeadLetter("", -1, pickled, "no", operator="parse", encoding=RECORD_PICKLED)
    lines = letters_of(tmp_path, letter)
    # A type that the program declares now does not hide the pickle.
    for type_spec in (None, LONG.to_spec()):
        harness = SourceHarness(LettersSource(lines, LetterTarget("parse", 0, type_spec)))
        with pytest.raises(LetterNotReadError, match="was not told to trust pickles"):
            harness.run()
        harness.close()
    harness = SourceHarness(LettersSource(lines, LetterTarget("parse", 0, trusts_pickles=True)))
    assert harness.run() == [{"a": 1}]
    harness.close()


@pytest.mark.parametrize(
    ("file_format", "good", "row", "bad"),
    [
        (JsonLinesFormat(Types.ROW_NAMED(["a"], [Types.INT()])), b'{"a": 5}', (5,), b'{"a": []}'),
        (
            CsvReaderFormat.for_schema(CsvSchema.builder().add_string_column("a").build()),
            b'"5\n6"',
            ("5\n6",),
            b'"5" 6, 7',
        ),
        (StreamFormat.text_line_format(), b"five", "five", b"\xff"),
    ],
)
def test_letters_of_files_go_through_the_format(
    tmp_path: Path, file_format: Any, good: bytes, row: Any, bad: bytes
) -> None:
    read = tmp_path / "in"
    read.touch()
    source = FileSource.for_record_stream_format(file_format.on_error("dead_letter"), str(read)).build()
    target = LetterTarget("lines", 0, source=cloudpickle.dumps(source))
    letters = [DeadLetter(str(read), at, raw, "no", operator="lines") for at, raw in ((3, good), (9, bad))]
    harness = SourceHarness(LettersSource(letters_of(tmp_path, *letters), target))
    assert [tuple(found) if isinstance(row, tuple) else found for found in harness.run()] == [row]
    again = [value for tag, value in harness.side if tag == DEAD_LETTERS]
    assert [(letter.operator, letter.split, letter.position, letter.raw) for letter in again] == [
        ("lines", str(read), 9, bad)
    ]
    assert harness.num_errors == 1 and numbers_in(harness) == [("lines", 2, 1, 0)]
    harness.close()


def test_a_message_goes_through_the_deserializer_with_all_that_the_letter_has() -> None:
    letter = DeadLetter("a-topic-3", 17, b"\xff", "no", key=b"k", timestamp=5, headers=(("h", b"1"),))
    read = letter_reader(SimpleStringSchema(), ErrorPolicy.DEAD_LETTER)
    made = read(letter._replace(raw=b"text"))
    assert (list(made.rows), made.timestamps) == (["text"], [5])
    again = read(letter)
    assert not again.rows and again.side is not None
    found = again.side[0][1]
    assert (found.split, found.position, found.key, found.timestamp) == ("a-topic-3", 17, b"k", 5)
    assert found.headers == (("h", b"1"),)


def test_a_silent_source_ends_without_a_row() -> None:
    harness = SourceHarness(pickle.loads(pickle.dumps(SilentSource())), 2)
    assert harness.run() == [] and harness.snapshot() == ([], [[], []])
    harness.close()
