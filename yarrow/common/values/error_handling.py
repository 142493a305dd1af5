"""ErrorHandling: what a source, a function or a sink does with a record at which it fails.

Owner: none (frozen values). Programs choose these, the JobGraph carries them, and operators follow them.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, NamedTuple

#: Id of the OutputTag of dead letters. Snapshots hold it: the name is that of the first letters, those of files.
DEAD_LETTERS: Final = "malformed-records"
#: Why most operators refuse on_error.
NO_SINGLE_RECORDS: Final = (
    "it does not take its records one by one, so that none could be left out alone. Call on_error on a map, flat_map,"
    " filter or process before it, or catch the error in the function"
)


class ErrorPolicy(Enum):
    """The treatment of a record that cannot be read, processed or written."""

    #: The job fails with an error that names the record and the reason.
    FAIL = "fail"
    #: The record is left out and counted in numRecordsInErrors.
    SKIP = "skip"
    #: As SKIP, and a DeadLetter goes to the side output `OutputTag(DEAD_LETTERS)`.
    DEAD_LETTER = "dead_letter"
    #: The older name of DEAD_LETTER.
    SIDE_OUTPUT = "dead_letter"


class ErrorHandling(NamedTuple):
    """A policy, and the bound past which the job fails. Each subtask counts for itself."""

    policy: ErrorPolicy = ErrorPolicy.FAIL
    #: Most records within 60 seconds that may be left out; None = no bound.
    max_per_minute: int | None = None
    #: Largest share, from 0 to 1, of records that may be left out among the latest ones; None = no bound.
    max_share: float | None = None

    @property
    def is_bounded(self) -> bool:
        """Whether there is anything to count."""
        return self.max_per_minute is not None or self.max_share is not None


#: The handling where the program says nothing.
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
        raise ValueError('on_error("fail") takes no bound: the first record with an error fails the job')
    return handling
