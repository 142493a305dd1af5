"""LettersSource: the dead letters of one operator, as the rows that this operator takes.

Owner: the engine for the enumerator, the task's thread for the reader. Lines and positions are those of the source
that reads the letters: each letter comes once, as each line does. Must not know which program is repaired.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, cast

import cloudpickle

from yarrow.datastream.connectors.base import (
    Boundedness,
    NothingAvailable,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.dead_letters import (
    DEAD_LETTERS,
    LAST_OF_MATCH,
    PAIR_OF_INPUTS,
    RECORD_SHOWN,
    DeadLetter,
)
from yarrow.datastream.connectors.letter_replay.letter_matches import letters_of_matches
from yarrow.datastream.connectors.letter_replay.letter_pairs import letters_of_pairs
from yarrow.datastream.connectors.letter_replay.letter_rows import ReadLetter, letters_of_rows
from yarrow.runtime.graph.operator_spec import TypeSpec

#: Id of the side output of numbers: (uid, letters that were fed, that were refused again, that hold text alone).
REPLAYED_LETTERS = "replayed-letters"


class LetterTarget(NamedTuple):
    """The input of an operator to which letters go."""

    #: As letters name the operator.
    uid: str
    input: int
    #: The declared type of the input's rows.
    type_spec: TypeSpec = None
    #: The pickled source that had read the letters; None = the letters hold rows of a function or sink.
    source: bytes | None = None
    #: The user trusts whoever can write letters, so pickles in them may be read.
    trusts_pickles: bool = False

    def reader(self) -> ReadLetter:
        """Return what makes rows of a letter."""
        if self.holds_matches:
            return letters_of_matches(self.type_spec, trusts_pickles=self.trusts_pickles)
        if self.source is None:
            read = letters_of_rows(self.type_spec, trusts_pickles=self.trusts_pickles)
            return letters_of_pairs(read) if self.holds_pairs else read
        source: Source[Any, Any] = cloudpickle.loads(self.source)
        found = source.letter_reader()
        assert found is not None, "the command refuses a source that cannot read letters"
        return found

    @property
    def holds_pairs(self) -> bool:
        """Whether the letters are pairs of rows of a join."""
        return self.source is None and self.input == PAIR_OF_INPUTS

    @property
    def holds_matches(self) -> bool:
        """Whether the letters are matches of a pattern."""
        return self.source is None and self.input == LAST_OF_MATCH

    def takes(self, letter: DeadLetter) -> bool:
        """Whether the letter is one of this operator and input."""
        return letter.operator == self.uid and letter.input == self.input


class LettersSource(Source[Any, SourceSplit]):
    """Reads letters, or lines of them, by another source, and gives the rows that one operator had put aside."""

    def __init__(self, lines: Source[Any, Any], target: LetterTarget) -> None:
        self._lines = lines
        self._target = target
        self.blocking = lines.blocking
        self.replay = lines.replay

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    def create_enumerator(
        self, context: SplitEnumeratorContext[SourceSplit], checkpoint: Any = None
    ) -> SplitEnumerator[SourceSplit]:
        """Return the enumerator of the lines."""
        return cast("SplitEnumerator[SourceSplit]", self._lines.create_enumerator(context, checkpoint))

    def create_reader(self, context: SourceReaderContext) -> LettersReader:
        """Return a reader of lines that makes rows of letters."""
        return LettersReader(self._lines.create_reader(context), self._target)


class LettersReader(SourceReader[Any, SourceSplit]):
    """Makes rows of the lines of another reader."""

    def __init__(self, lines: SourceReader[Any, Any], target: LetterTarget) -> None:
        self._lines = lines
        self._target = target
        self._read = target.reader()

    def poll(self, max_rows: int) -> SourceRecords | NothingAvailable | None:
        """Return the rows of the letters of the next lines; perhaps none, where all are of other operators."""
        found = self._lines.poll(max_rows)
        return self._rows_of(found) if isinstance(found, SourceRecords) else found

    def _rows_of(self, lines: SourceRecords) -> SourceRecords:
        made: list[SourceRecords] = []
        replayed, shown = 0, 0
        for line in lines.rows:
            if not line:
                continue
            letter = line if isinstance(line, DeadLetter) else DeadLetter.from_json(line)
            if not self._target.takes(letter):
                continue
            if letter.encoding == RECORD_SHOWN:
                shown += 1
                continue
            replayed += 1
            made.append(self._read(letter))
        side = [entry._replace(operator=self._target.uid) for each in made for entry in _letters_in(each)]
        records = _joined(made)
        records.split_id, records.finished_before = lines.split_id, lines.finished_before
        records.side = [(DEAD_LETTERS, letter) for letter in side]
        if replayed or shown:
            records.side.append((REPLAYED_LETTERS, (self._target.uid, replayed, records.num_errors, shown)))
        return records

    def start(self) -> None:
        self._lines.start()

    def add_splits(self, splits: Sequence[SourceSplit]) -> None:
        """Pass splits on."""
        self._lines.add_splits(splits)

    def notify_no_more_splits(self) -> None:
        self._lines.notify_no_more_splits()

    def snapshot_state(self, checkpoint_id: int) -> list[SourceSplit]:
        """Return the positions in the lines."""
        return self._lines.snapshot_state(checkpoint_id)

    def pause_or_resume_splits(
        self, splits_to_pause: Collection[str], splits_to_resume: Collection[str]
    ) -> None:
        self._lines.pause_or_resume_splits(splits_to_pause, splits_to_resume)

    def unreachable_splits(self) -> Collection[str]:
        return self._lines.unreachable_splits()

    def handle_source_event(self, event: Any) -> None:
        self._lines.handle_source_event(event)

    def close(self) -> None:
        self._lines.close()


def _letters_in(records: SourceRecords) -> list[DeadLetter]:
    return [value for tag, value in records.side or () if tag == DEAD_LETTERS]


def _joined(made: Sequence[SourceRecords]) -> SourceRecords:
    """The rows of several letters as those of one poll; all are lists, or all are record batches."""
    errors = sum(each.num_errors for each in made)
    # A letter whose record cannot be read again has no rows.
    made = [each for each in made if len(each.rows)]
    lists = [each for each in made if isinstance(each.rows, list | tuple)]
    if len(lists) < len(made):
        return SourceRecords(_one_batch([each.rows for each in made]), num_errors=errors)
    rows: list[Any] = []
    timestamps: list[int | None] = []
    for each in lists:
        rows += each.rows
        timestamps += each.timestamps or [None] * len(each.rows)
    known = any(timestamp is not None for timestamp in timestamps)
    return SourceRecords(rows, timestamps if known else None, num_errors=errors)


def _one_batch(batches: Sequence[Any]) -> Any:
    # Most letters are rows.
    import pyarrow as pa

    return pa.concat_batches(batches)
