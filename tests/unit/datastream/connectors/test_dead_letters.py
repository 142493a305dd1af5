"""on_error of sources and formats: which treatment and bounds there are, and what becomes of a bad record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.unit.datastream.connectors.harness import SourceHarness
from yarrow.common.typeinfo import Types
from yarrow.common.values.error_handling import ErrorHandling, error_handling
from yarrow.datastream.connectors import Boundedness, DeadLetter, ErrorPolicy
from yarrow.datastream.connectors.dead_letters import strictest, traceback_of
from yarrow.datastream.connectors.file_format import BulkFormat, FileReader, FileSourceSplit
from yarrow.datastream.connectors.file_system import FileSource, MalformedPolicy, StreamFormat
from yarrow.datastream.connectors.hybrid_source import HybridSource
from yarrow.datastream.connectors.kafka import KafkaSource
from yarrow.datastream.formats.csv import CsvReaderFormat, CsvSchema
from yarrow.datastream.formats.json import JsonLinesFormat
from yarrow.datastream.formats.parquet import ParquetColumnarRowInputFormat
from yarrow.runtime.common.errors import UnsupportedFeatureError

PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.INT()])
PEOPLE = CsvSchema.builder().add_string_column("name").add_number_column("age", Types.INT()).build()


def test_a_treatment_has_a_name() -> None:
    assert error_handling("skip") == ErrorHandling(ErrorPolicy.SKIP)
    assert error_handling(ErrorPolicy.DEAD_LETTER, 5, 0.5) == (ErrorPolicy.DEAD_LETTER, 5, 0.5)
    assert not error_handling("fail").is_bounded and error_handling("skip", max_share=0.0).is_bounded
    assert MalformedPolicy is ErrorPolicy and getattr(ErrorPolicy, "SIDE_OUTPUT") == ErrorPolicy.DEAD_LETTER  # noqa: B009


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("ignore",), r'on_error takes "fail", "skip", "dead_letter", not \'ignore\''),
        (("skip", -1), "max_per_minute must be 0 or more, not -1"),
        (("skip", None, 1.0), "max_share must be from 0 to below 1, not 1.0"),
        (("fail", 3), r'on_error\("fail"\) takes no bound'),
    ],
)
def test_other_treatments_are_refused(arguments: tuple[Any, ...], expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        error_handling(*arguments)


def test_a_chain_of_sources_has_the_strictest_bounds() -> None:
    assert strictest([]) == ErrorHandling()
    some = [error_handling("skip", 9, 0.5), error_handling("dead_letter", 3), error_handling("fail")]
    assert strictest(some) == (ErrorPolicy.SKIP, 3, 0.5)
    lines = FileSource.for_record_stream_format(StreamFormat.text_line_format(), "in")
    bounded, free = lines.on_error("skip", max_share=0.1).build(), lines.on_error("skip").build()
    assert HybridSource.builder(bounded).add_source(free).build().errors.max_share == 0.1
    switched = HybridSource.builder(free).add_source(lambda context: free, Boundedness.BOUNDED).build()
    assert not switched.errors.is_bounded


def test_a_builder_hands_the_treatment_to_its_format_and_leaves_the_given_one() -> None:
    given = JsonLinesFormat(PERSON)
    source = FileSource.for_record_stream_format(given, "/in").on_error("skip", max_per_minute=7).build()
    assert source.errors == (ErrorPolicy.SKIP, 7, None) and given.errors == ErrorHandling()
    assert source.with_default_scheme("hdfs://nn").errors == source.errors


def test_a_kafka_source_has_it_too() -> None:
    from yarrow.common import SimpleStringSchema

    builder = KafkaSource.builder().set_bootstrap_servers("b:1").set_topics("t")
    builder.set_value_only_deserializer(SimpleStringSchema())
    assert builder.build().errors.policy is ErrorPolicy.FAIL
    built = builder.on_error("dead_letter", max_share=0.2).build()
    assert built.errors == (ErrorPolicy.DEAD_LETTER, None, 0.2)
    history = built.history()
    assert history is not None and history.errors == built.errors


class OneValue(BulkFormat[int]):
    """A format that says nothing of damage."""

    def create_reader(self, split: FileSourceSplit) -> FileReader:
        raise NotImplementedError


def test_formats_of_users_refuse_what_they_do_not_say() -> None:
    with pytest.raises(UnsupportedFeatureError, match=r"'skip'\) is refused for OneValue.*no single records"):
        FileSource.for_bulk_file_format(OneValue(), "in").on_error("skip")
    assert OneValue().on_error("fail").errors.policy is ErrorPolicy.FAIL
    blocks = ParquetColumnarRowInputFormat(PERSON)
    assert (
        FileSource.for_bulk_file_format(blocks, "in").on_error("skip").build().errors.policy
        is ErrorPolicy.SKIP
    )


@pytest.mark.parametrize(
    ("file_format", "lines", "raw"),
    [
        (JsonLinesFormat(PERSON), b'{"name": "ann"}\r\n{"name": 3}\r\n', b'{"name": 3}'),
        (JsonLinesFormat(PERSON, columnar=True), b'{"name": "ann"}\n{"name": 3}\n', b'{"name": 3}'),
        (CsvReaderFormat.for_schema(PEOPLE), b"ann,1\nbob,x\n", b"bob,x"),
        (StreamFormat.text_line_format(), b"ann\n\xff\xfe\r\n", b"\xff\xfe"),
    ],
)
def test_a_letter_has_the_bytes_the_place_and_the_traceback(
    tmp_path: Path, file_format: Any, lines: bytes, raw: bytes
) -> None:
    file = tmp_path / "in"
    file.write_bytes(lines)
    builder = FileSource.for_record_stream_format(file_format, str(file)).on_error("dead_letter")
    harness = SourceHarness(builder.build())
    assert len(harness.run()) == 1
    [(tag, letter)] = harness.side
    assert tag == "malformed-records" and isinstance(letter, DeadLetter)
    assert (letter.split, letter.position, letter.raw) == (str(file), 2, raw)
    assert (letter.error and letter.traceback.startswith("Traceback")) or letter.traceback.count("Error")
    assert letter.operator == "", "the engine fills it in"


def test_a_long_traceback_keeps_its_end() -> None:
    try:
        raise ValueError("x" * 9000 + " the end")
    except ValueError as error:
        text = traceback_of(error)
    assert len(text) == 4000 and text.endswith("the end")


def test_a_letter_is_a_line_of_json_and_comes_back() -> None:
    full = DeadLetter("t-0", 7, b"\xff\n", "bad", "Traceback", "uid", None, 5, (("h", b"\x00"), ("n", None)))
    of_function = DeadLetter("", -1, b"row", "bad", key=b"k", encoding="typed", input=1)
    for letter in (full, of_function, DeadLetter("f", 1, None, "")):
        line = letter.to_json()
        assert "\n" not in line and DeadLetter.from_json(line) == letter
        assert DeadLetter.from_json(line.encode()) == letter
    older = DeadLetter.from_json('{"split": "f", "position": 3, "raw": "YQ==", "error": "e"}')
    assert older == DeadLetter("f", 3, b"a", "e")


def test_an_error_may_quote_text_that_utf_8_cannot_hold() -> None:
    letter = DeadLetter("f-\udcff", 1, b"x", "no \ud800", traceback="ValueError: no \ud800")
    shown = letter._replace(split="f-\\udcff", error="no \\ud800", traceback="ValueError: no \\ud800")
    assert DeadLetter.from_json(letter.to_json()) == shown


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "no dead letter: Input data was truncated"),
        ('{"split": "f"}', "the field 'position' is missing"),
        ('{"split": "f", "position": "x", "raw": null, "error": ""}', "Expected `int`, got `str`"),
        (b"\xff", "no dead letter"),
    ],
)
def test_another_line_is_no_letter(line: str | bytes, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        DeadLetter.from_json(line)
