"""Paths that cannot be a table of dead letters are refused when the program is built."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from yarrow.common.typeinfo import Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.dead_letter_table import DeadLetterTable
from yarrow.datastream.connectors.dead_letter_table.dead_letter_table import _Days
from yarrow.datastream.connectors.dead_letter_table.letter_columns import batch_of_letters
from yarrow.datastream.connectors.dead_letters import DeadLetter
from yarrow.datastream.connectors.file_sink_policies import BucketContext
from yarrow.runtime.common.errors import InvalidProgramError

LETTER = DeadLetter("f", 1, b"a", "bad", failed_at=0)


def to_table(path: object) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    parsed = env.from_sequence(1, 9).map(str, Types.STRING()).on_error("dead_letter")
    parsed.dead_letters().sink_to(DeadLetterTable(path))  # type: ignore[arg-type]


def test_a_path_is_a_text() -> None:
    for path in (None, "", 5, Path("letters")):
        with pytest.raises(TypeError, match="DeadLetterTable: the path of a folder must be a non-empty str"):
            to_table(path)


def a_file(table: Path) -> None:
    table.write_text("x")


def an_hour(table: Path) -> None:
    (table / "hour=7").mkdir(parents=True)


def no_day(table: Path) -> None:
    (table / "day=monday").mkdir(parents=True)


def rows_beside_days(table: Path) -> None:
    table.mkdir()
    (table / "part-0").write_text("{}")


def lines_in_days(table: Path) -> None:
    (table / "day=2026-11-30").mkdir(parents=True)
    (table / "day=2026-11-30" / "part-0").write_text(LETTER.to_json())


def another_type(table: Path) -> None:
    written = pa.Table.from_batches([batch_of_letters([LETTER])])
    place = written.schema.get_field_index("position")
    (table / "day=2026-11-30").mkdir(parents=True)
    texts = written.set_column(place, "position", pa.array(["1"]))
    pq.write_table(texts, table / "day=2026-11-30" / "part-0")


def other_columns(table: Path) -> None:
    (table / "day=2026-11-30").mkdir(parents=True)
    pq.write_table(pa.table({"operator": ["a"]}), table / "day=2026-11-30" / "part-0")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (a_file, "is a file; give the folder"),
        (an_hour, "has 'hour=7', which is no folder of a day, such as day=2026-11-30"),
        (no_day, "has 'day=monday', which is no folder of a day"),
        (rows_beside_days, "has 'part-0', which is no folder of a day"),
        (lines_in_days, "day=2026-11-30/part-0 is no Parquet file"),
        (another_type, "has the type string in column 'position', where letters have int64"),
        (other_columns, "has no column 'input', where letters have int32"),
    ],
)
def test_a_folder_of_something_else_is_refused(
    make: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    make(tmp_path / "table")
    with pytest.raises(InvalidProgramError, match=words):
        to_table(str(tmp_path / "table"))


@pytest.mark.parametrize("part", ["day=2026-11-30", "operator=5"])
def test_a_path_that_gives_a_column_is_refused(part: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidProgramError, match=f"readers take the folder '{part}' for the column"):
        to_table(str(tmp_path / part / "letters"))
    # Readers make one more column of another name.
    to_table(str(tmp_path / "region=5" / "letters"))


def test_its_own_table_is_taken_again(tmp_path: Path) -> None:
    (tmp_path / "day=2026-11-30").mkdir()
    (tmp_path / ".staging-1").mkdir()
    (tmp_path / "_SUCCESS").write_text("")
    to_table(str(tmp_path))
    pq.write_table(
        pa.Table.from_batches([batch_of_letters([LETTER])]), tmp_path / "day=2026-11-30" / "part-0"
    )
    to_table(str(tmp_path))


def test_the_day_is_that_of_the_failure() -> None:
    of_now = BucketContext(86_400_000 * 2, None)
    assert _Days().get_bucket_id(LETTER, of_now) == "day=1970-01-01"
    assert _Days().get_bucket_id(LETTER._replace(failed_at=None), of_now) == "day=1970-01-03"
    with pytest.raises(TypeError, match="takes DeadLetter rows, not str: put it behind dead_letters"):
        _Days().get_bucket_id(LETTER.to_json(), of_now)
