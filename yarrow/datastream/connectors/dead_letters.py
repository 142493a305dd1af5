"""Dead letters: the form in which a record goes aside that cannot be read, processed or written.

Owner: none (values). Sources, formats and operators make letters on the task's thread. Must not know formats, systems.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from yarrow.common.values.error_handling import DEAD_LETTERS as DEAD_LETTERS
from yarrow.common.values.error_handling import ErrorHandling, ErrorPolicy

#: The record came from outside as these bytes.
RECORD_BYTES: Final = "bytes"
#: The encoding of the declared type of the operator's input.
RECORD_TYPED: Final = "typed"
#: A pickle: the operator's input has no declared type, or a type that pickles.
RECORD_PICKLED: Final = "pickled"
#: The record could be encoded neither way: `raw` is its repr, for people.
RECORD_SHOWN: Final = "shown"

#: The systems of letters of this package's sources.
SYSTEM_OF_FILES: Final = "files"
SYSTEM_OF_TOPICS: Final = "kafka"

#: The `input` of letters of joins: they hold a row of each side, None = the row has no partner.
PAIR_OF_INPUTS: Final = 2
#: The `input` of letters of matches: `raw` is the last row of the match, and `rows` has all.
LAST_OF_MATCH: Final = 3
#: The `input` of letters of windows: they hold a row of a window whose function has failed.
ROW_OF_WINDOW: Final = 4
#: The `input` of letters of windows with pre_aggregate, and of windows at which a function fails when they fire: they
#: hold a value into which several rows were folded.
PARTIAL_VALUE: Final = 5

#: Most characters of a traceback in a letter.
LONGEST_TRACEBACK: Final = 4000


class DeadLetter(NamedTuple):
    """A record that could not be read, processed or written, with all that is needed to take it again."""

    #: The file or the partition; empty = a function or a sink had the record.
    split: str
    #: The line of a file, from 1; the offset in a partition; -1 = a function or a sink had the record.
    position: int
    #: The record as it came; of a message, the value. None = the message has no value. Of a function or a sink, the
    #: record as `encoding` says.
    raw: bytes | None
    #: The reason in one sentence.
    error: str
    #: The user's and the format's frames.
    traceback: str = ""
    #: The uid of the operator, or its id where the program gives no uid. The engine fills it in.
    operator: str = ""
    #: Of a message, its key; of a function on a keyed stream, the encoded key of the record.
    key: bytes | None = None
    #: ms since 1970 UTC; None = the record has none.
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    #: How `raw` holds the record: one of the RECORD_ names.
    encoding: str = RECORD_BYTES
    #: The input of the operator that had the record: 1 = the second one of a function of two streams, PAIR_OF_INPUTS =
    #: `raw` is a pair of rows that a join has not joined, LAST_OF_MATCH = the last row of a match without results,
    #: ROW_OF_WINDOW = a row of a window without results, PARTIAL_VALUE = rows that were folded: before they
    #: came, or by a window without results.
    input: int = 0
    #: Of the writer's schema in its registry; None = the message names none.
    schema_id: int | None = None
    #: The declared type of the row in `raw`, for people and for comparisons; empty = undeclared, or no row.
    record_type: str = ""
    #: The place of the source in its HybridSource, from 0, outermost first; empty = it stands alone.
    places: tuple[int, ...] = ()
    #: The system that the record came from, as its connector names it; empty = a function or a sink had the record.
    system: str = ""
    #: The class of the error, without its module.
    error_class: str = ""
    #: ms since 1970 UTC: when the engine put the record aside; None = not known.
    failed_at: int | None = None
    #: Of a pair, the timestamps of both rows; empty = the letter holds no pair.
    row_times: tuple[int | None, ...] = ()
    #: Of a match, the step of each row in `rows`; empty = the letter holds no match, or a row of it fits no type.
    steps: tuple[str, ...] = ()
    #: Of a match, all its rows as `encoding` says, step by step.
    rows: bytes | None = None
    #: Of a match, the time that its function was told, in ms.
    match_time: int | None = None
    #: The match is a partial one whose time had passed.
    timed_out: bool = False

    def of_source(self, place: int) -> DeadLetter:
        """Return the letter of the source at this place of a HybridSource, as the HybridSource tells it."""
        return self._replace(places=(place, *self.places))

    def to_json(self) -> str:
        """Return the letter as one line: an object of its fields, in which bytes are base64."""
        fields = {
            name: encodable(value) if isinstance(value, str) else value
            for name, value in self._asdict().items()
        }
        return msgspec.json.encode(fields).decode()

    @staticmethod
    def from_json(line: str | bytes) -> DeadLetter:
        """Return the letter that `to_json` has written. Raises ValueError for anything else."""
        try:
            fields = msgspec.json.decode(line, type=dict[str, Any])
            values = {**DeadLetter._field_defaults, **fields}
            return msgspec.convert([values[name] for name in DeadLetter._fields], DeadLetter)
        except KeyError as error:
            raise ValueError(f"the line is no dead letter: the field {error} is missing") from None
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError) as error:
            raise ValueError(f"the line is no dead letter: {error}") from error

    @property
    def text(self) -> str:
        """The record as text; bytes that are no UTF-8 are replaced."""
        return "" if self.raw is None else self.raw.decode("utf-8", "replace")


class LeftOutPair(NamedTuple):
    """A pair of rows that a join has not joined; None = the row has no partner. Times are ms since 1970 UTC."""

    left: Any
    right: Any
    left_time: int | None
    right_time: int | None


class LeftOutMatch(NamedTuple):
    """A match at which the function of a pattern has failed."""

    #: Rows by the name of their step.
    match: dict[str, list[Any]]
    #: What the function is told: ms since 1970 UTC.
    time: int
    #: It is a partial match whose time had passed.
    timed_out: bool
    #: The encoded key of its rows; None = the pattern had none.
    key: bytes | None


def encodable(text: str) -> str:
    """Return a text that UTF-8 can hold: lone surrogates, which an error may quote, are written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def strictest(handlings: Iterable[ErrorHandling]) -> ErrorHandling:
    """Return the bounds that hold where several sources are read as one; the policy is the first one's."""
    found = list(handlings)
    rates = [each.max_per_minute for each in found if each.max_per_minute is not None]
    shares = [each.max_share for each in found if each.max_share is not None]
    policy = found[0].policy if found else ErrorPolicy.FAIL
    return ErrorHandling(policy, min(rates, default=None), min(shares, default=None))


def traceback_of(error: BaseException) -> str:
    """Return the frames below the caller, and the error, as Python writes them; a long text loses its beginning."""
    below = error.__traceback__
    frames = traceback.format_exception(type(error), error, below.tb_next if below is not None else None)
    return "".join(frames).rstrip()[-LONGEST_TRACEBACK:]
