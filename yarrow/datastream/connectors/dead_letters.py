"""Dead letters: what a source does with a record that it cannot read, and the form in which such a record goes aside.

Owner: none (values). Sources and formats make letters on the task's thread. Must not know formats or systems.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple

#: Id of the OutputTag of dead letters. Snapshots hold it: the name is that of the first letters, those of files.
DEAD_LETTERS: Final = "malformed-records"

#: Most characters of a traceback in a letter; the end stays, which names the error.
_LONGEST_TRACEBACK: Final = 4000


class ErrorPolicy(Enum):
    """The treatment of a record that cannot be read."""

    #: The job fails with an error that names position and reason.
    FAIL = "fail"
    #: The record is left out and counted in numRecordsInErrors.
    SKIP = "skip"
    #: As SKIP, and a DeadLetter goes to the side output `OutputTag(DEAD_LETTERS)`.
    DEAD_LETTER = "dead_letter"
    #: The older name of DEAD_LETTER.
    SIDE_OUTPUT = "dead_letter"


class DeadLetter(NamedTuple):
    """A record that could not be read, with all that is needed to find and read it again."""

    #: The file or the partition.
    split: str
    #: The line of a file, from 1; the offset in a partition.
    position: int
    #: The record as it came; of a message, the value. None = the message has no value.
    raw: bytes | None
    #: The reason in one sentence.
    error: str
    #: The user's and the format's frames.
    traceback: str = ""
    #: The uid of the source, or its id where the program gives no uid. The engine fills it in.
    operator: str = ""
    key: bytes | None = None
    #: ms since 1970 UTC; None = the record has none.
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @property
    def text(self) -> str:
        """The record as text; bytes that are no UTF-8 are replaced."""
        return "" if self.raw is None else self.raw.decode("utf-8", "replace")


class ErrorHandling(NamedTuple):
    """A policy, and the bound past which the job fails. Each subtask of the source counts for itself."""

    policy: ErrorPolicy = ErrorPolicy.FAIL
    #: Most records within 60 seconds that may be left out; None = no bound.
    max_per_minute: int | None = None
    #: Largest share, from 0 to 1, of records that may be left out among the latest ones; None = no bound.
    max_share: float | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is anything to count."""
        return self.max_per_minute is not None or self.max_share is not None


#: The handling of a source of which the program says nothing.
FAILING: Final = ErrorHandling()


def error_handling(
    policy: str | ErrorPolicy, max_per_minute: int | None = None, max_share: float | None = None
) -> ErrorHandling:
    """Return the handling that a program asks for.

    Raises ValueError for another policy than "fail", "skip" and "dead_letter". It also raises ValueError for a bound
    that nothing can be below, and for a bound on "fail".
    """
    try:
        chosen = ErrorPolicy(policy)
    except ValueError:
        names = ", ".join(f'"{each.value}"' for each in ErrorPolicy)
        raise ValueError(f"on_error takes {names}, not {policy!r}") from None
    handling = ErrorHandling(chosen, max_per_minute, max_share)
    if max_per_minute is not None and max_per_minute < 0:
        raise ValueError(f"on_error: max_per_minute must be 0 or more, not {max_per_minute!r}")
    if max_share is not None and not 0 <= max_share < 1:
        raise ValueError(f"on_error: max_share must be from 0 to below 1, not {max_share!r}")
    if chosen is ErrorPolicy.FAIL and handling.is_bounded:
        raise ValueError(
            'on_error("fail") takes no bound: the first record that cannot be read fails the job'
        )
    return handling


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
    return "".join(frames).rstrip()[-_LONGEST_TRACEBACK:]
