"""FailedRecords: leaves out the records at which an operator fails, counts them, and makes their dead letters.

Owner: the task thread. Must not know how the operator calls user code, nor who reads the letters. State that a function
has changed before it failed stays changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import Any, Final

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy
from yarrow.container.metrics.metric_registry import OperatorMetricGroup
from yarrow.container.operators.error_bounds import ErrorBounds
from yarrow.container.protocol.failure import OperatorFailure, format_user_first, short_record
from yarrow.container.state.registering_backend import NO_KEY
from yarrow.datastream.connectors.dead_letters import (
    DEAD_LETTERS,
    LONGEST_TRACEBACK,
    RECORD_PICKLED,
    RECORD_SHOWN,
    RECORD_TYPED,
    DeadLetter,
)
from yarrow.datastream.output_tag import OutputTag
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.common.short_text import cut_in_the_middle
from yarrow.runtime.data.keys import canonicalize, encode_key
from yarrow.runtime.data.serializers.serializers import RowsSerializer, serializer_for

#: Most characters of the error in a letter.
_LONGEST_ERROR: Final = 1000
_LETTERS: Final = OutputTag(DEAD_LETTERS)
#: Errors that no other record would escape: they fail the job.
_ALWAYS_FATAL: Final = (YarrowError, OperatorFailure, MemoryError)
#: Numbers of records: those that have come, and those that were left out.
Counts = tuple[int, int]


class FailedRecords:
    """The records of one subtask that its operator has left out."""

    def __init__(
        self,
        name: str,
        uid: str,
        handling: ErrorHandling,
        inputs: tuple[int, ...],
        types: tuple[TypeInformation | None, ...],
    ) -> None:
        """`inputs`: those of which records can be left out. `types`: the declared type of each input."""
        #: The inputs of which records can be left out.
        self.inputs = inputs
        #: Whether the program asks for dead letters.
        self.wants_letters = handling.policy is ErrorPolicy.DEAD_LETTER
        self.is_bounded = handling.is_bounded
        #: The operator would give one result for each row if it left out none.
        self.of_one_to_one = False
        #: The records that have come, in a list of one number; counted only for bounds.
        self.seen = [0]
        #: Errors that are none of a record. Who tells records at fault by itself sets fewer.
        self.fatal: tuple[type[Exception], ...] = _ALWAYS_FATAL
        #: Errors of a record among these.
        self.never_fatal: tuple[type[Exception], ...] = ()
        #: The number of records that were left out.
        self.count = 0
        #: Sends a letter, perhaps with its timestamp, aside; the chain sets it. None = nobody reads letters.
        self.send: Callable[[list[Any], list[int | None] | None], None] | None = None
        self._uid = uid
        self._types = types
        self._type_texts = ["" if declared is None else str(declared) for declared in types]
        self._bounds = ErrorBounds(f"operator '{name}' failed at", handling)
        self._counted = (0, 0)
        self._serializers: dict[int, RowsSerializer] = {}
        self._current_key: Callable[[], Any] = lambda: NO_KEY
        #: The key of a record; None = that of the operator's state.
        self._key_of: Callable[[Any], Any] | None = None
        self._clock: Clock

    def set_up(self, current_key: Callable[[], Any], metrics: OperatorMetricGroup, clock: Clock) -> None:
        """Take the operator's surroundings; `current_key` returns NO_KEY for a stream without keys."""
        self._current_key, self._clock = current_key, clock
        metrics.gauge("numRecordsInErrors", lambda: self.count)

    def take_also(self, index: int, declared: TypeInformation | None) -> None:
        """Take records of this type as those of an input that the operator does not have."""
        padded = (*self._types, *[None] * index)
        self._types = (*padded[:index], declared)
        self._type_texts = ["" if declared is None else str(declared) for declared in self._types]

    def keyed_by(self, key_of: Callable[[Any], Any]) -> None:
        """Let letters have the key of their record, where the operator has no keyed state."""
        self._key_of = key_of

    @property
    def counts(self) -> Counts:
        """The numbers of records that have come and that were left out."""
        return self.seen[0], self.count

    def go_back_to(self, counts: Counts) -> None:
        """Take back what was counted since then, because a record has changed nothing."""
        self.seen[0], self.count = counts
        self._counted = min(self._counted[0], counts[0]), min(self._counted[1], counts[1])

    def type_of(self, index: int) -> TypeInformation | None:
        """Return the declared type of an input; None = undeclared."""
        return self._types[index] if index < len(self._types) else None

    def leave_out(self, error: Exception, index: int, record: Any, timestamp: int | None) -> None:
        """Count a record of input `index`. Raises the error again if it is none of the record."""
        if self.is_fatal(error):
            raise error
        self.count += 1

    def is_fatal(self, error: Exception) -> bool:
        """Whether the error is none of a record, so that it fails the job."""
        return isinstance(error, self.fatal) and not isinstance(error, self.never_fatal)

    def letter(
        self,
        error: Exception,
        index: int,
        record: Any,
        timestamp: int | None,
        told: str = "",
        *,
        has_frames: bool = True,
    ) -> DeadLetter:
        """As `leave_out`; returns the letter of the record. `told` says more of the record, behind the error.

        `has_frames`: the letter has the traceback.
        """
        self.leave_out(error, index, record, timestamp)
        raw, encoding = self._encoded(index, record)
        return DeadLetter(
            split="",
            position=-1,
            raw=raw,
            error=_one_line(error, told),
            traceback=_traceback(error) if has_frames else "",
            operator=self._uid,
            key=self._key(record),
            timestamp=timestamp,
            encoding=encoding,
            input=index,
            record_type=self._type_texts[index] if index < len(self._type_texts) else "",
            error_class=type(error).__name__,
            failed_at=self._clock.epoch_ms(),
        )

    def tagged_letters(
        self, error: Exception, index: int, record: Any, timestamp: int | None, told: str = ""
    ) -> tuple[tuple[OutputTag, DeadLetter], ...]:
        """As `letter`; returns what leaves in place of the record's results: its letter, if somebody reads it."""
        letter = self._letter_if_read(error, index, record, timestamp, told)
        return () if letter is None else ((_LETTERS, letter),)

    def letters_of_rows(
        self, error: Exception, index: int, records: Iterable[tuple[Any, int | None]], told: str
    ) -> Iterator[tuple[OutputTag, DeadLetter]]:
        """As `tagged_letters` for records with their timestamps that fail together: the first one has the traceback."""
        is_first = True
        for record, timestamp in records:
            if self.send is None or not self.wants_letters:
                self.leave_out(error, index, record, timestamp)
            else:
                yield _LETTERS, self.letter(error, index, record, timestamp, told, has_frames=is_first)
            is_first = False

    def put_aside(self, error: Exception, index: int, record: Any, timestamp: int | None) -> None:
        """As `leave_out`; sends the letter of the record if somebody reads it."""
        letter = self._letter_if_read(error, index, record, timestamp)
        if letter is not None and self.send is not None:
            self.send([letter], None if timestamp is None else [timestamp])

    def _letter_if_read(
        self, error: Exception, index: int, record: Any, timestamp: int | None, told: str = ""
    ) -> DeadLetter | None:
        if self.send is None or not self.wants_letters:
            self.leave_out(error, index, record, timestamp)
            return None
        return self.letter(error, index, record, timestamp, told)

    def check(self) -> None:
        """Compare the counts with the bounds. Raises TooManyErrorsError."""
        seen, left_out = self.seen[0] - self._counted[0], self.count - self._counted[1]
        if seen or left_out:
            self._counted = (self.seen[0], self.count)
            self._bounds.count(seen - left_out, left_out, self._clock.monotonic())

    def end(self) -> None:
        """Look at the counts once more when the input has ended. Raises TooManyErrorsError."""
        self.check()
        self._bounds.end()

    def _encoded(self, index: int, record: Any) -> tuple[bytes, str]:
        """The record, and how it is encoded; a record that does not fit its declared type is shown as text."""
        serializer = self._serializer(index)
        with suppress(Exception):  # a user's __reduce__ may raise anything
            return serializer.dump_rows([record]), RECORD_PICKLED if serializer.pickles else RECORD_TYPED
        return short_record(record).encode("utf-8", "replace"), RECORD_SHOWN

    def encoded_together(self, index: int, records: list[Any]) -> bytes | None:
        """Records of an input in the encoding of their letters; None if one does not fit its declared type."""
        with suppress(Exception):  # as above
            return self._serializer(index).dump_rows(records)
        return None

    def _serializer(self, index: int) -> RowsSerializer:
        serializer = self._serializers.get(index)
        if serializer is None:
            serializer = self._serializers[index] = serializer_for(self.type_of(index))
        return serializer

    def _key(self, record: Any) -> bytes | None:
        with suppress(Exception):  # a user's key selector may raise anything
            key = self._current_key() if self._key_of is None else self._key_of(record)
            return None if key is NO_KEY else encode_key(canonicalize(key))
        return None


def _one_line(error: Exception, told: str) -> str:
    with suppress(Exception):  # a user's __str__ may raise anything
        text = f"{type(error).__name__}: {error}{told and '; '}{told}"
        return cut_in_the_middle(" ".join(text.split()), _LONGEST_ERROR)
    return type(error).__name__


def _traceback(error: Exception) -> str:
    with suppress(Exception):  # as above
        return cut_in_the_middle(format_user_first(error).rstrip(), LONGEST_TRACEBACK)
    return ""
