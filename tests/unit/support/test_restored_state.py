"""The steady job tells the state that it was restored with, also after it has counted on."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from tests.support.kept_state import kept_state
from tests.support.restored_state import TellingCounting, found_splits, found_state
from tests.support.steady_rows import COUNTS, SteadySource, reader_names
from yarrow.common.typeinfo import Types
from yarrow.datastream.connectors.base import SourceReaderContext
from yarrow.datastream.data_stream import DataStream
from yarrow.state_processor import SavepointEnvironment
from yarrow.testing.gated_source import GatedSplit, key_of, row_of

ROWS = [row_of("n", 0, index, 24) for index in range(40)]


def test_the_state_that_was_restored_is_told_and_no_later_one(tmp_path: Path) -> None:
    def counted(stream: DataStream) -> DataStream:
        return stream.key_by(key_of, Types.STRING()).process(TellingCounting(str(tmp_path))).uid(COUNTS)

    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    with SavepointEnvironment(counted) as running:
        running.push(ROWS)
        running.write(first)
        assert set(found_state(tmp_path, 1).values()) == {None}, "it began empty"
    with SavepointEnvironment(counted, first) as running:
        assert found_state(tmp_path, 1) == {}
        running.push([*ROWS, ("another key", 0, "n0:40", 1)])
        running.write(second)
    found = found_state(tmp_path, 1)
    assert found.pop("another key") is None
    assert found == kept_state(first)
    with SavepointEnvironment(counted, second) as running:
        running.push(ROWS)
    found = found_state(tmp_path, 1)
    assert found != {key: state for key, state in kept_state(first).items() if key in found}
    assert found == {key: state for key, state in kept_state(second).items() if key in found}


class Context:
    """Of a reader whose questions nobody answers."""

    def __init__(self, subtask_index: int) -> None:
        self.subtask_index = subtask_index

    def request_split(self) -> None:
        """It would come later."""


def test_the_splits_that_were_restored_are_told_and_none_that_come_later(tmp_path: Path) -> None:
    source = SteadySource(str(tmp_path))
    for subtask, restored in enumerate(
        ([GatedSplit(0, 17, 100), GatedSplit(2, 5, 100)], [GatedSplit(1, 3, 100)])
    ):
        reader: Any = source.create_reader(cast(SourceReaderContext, Context(subtask)))
        reader.add_splits(restored)
        reader.start()
        reader.add_splits([GatedSplit(subtask + 10, 0, 100)])
    assert found_splits(tmp_path, reader_names(2)) == {0: 17, 1: 3, 2: 5}
