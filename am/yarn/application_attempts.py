"""Attempts of an application: which one this is, how many YARN starts, and who decides when one fails.

Owner: the main thread of the ApplicationMaster; `count` blocks for a few reads. YARN counts no attempt that it has
ended itself or lost: with its node, its disks, or to another queue (RMAppAttempt in Hadoop). Skein knows nothing of
that: of an attempt whose number has reached the limit it reports the failure as the application's end, and of one
before it reports no end but SUCCEEDED.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from yarrow.runtime.yarn.gateways import FinalStatus

#: Exit statuses of a master's container that YARN does not count: lost or released, disks failed, preempted, ended by
#: the ResourceManager.
_UNCOUNTED: Final = frozenset({-100, -101, -102, -106})
_EXIT: Final = re.compile(r"exited with\s+exitCode: (-?\d+)")


@dataclass(frozen=True, slots=True)
class ApplicationAttempts:
    """As one attempt sees them."""

    #: Of this attempt, from 1.
    number: int
    #: How many failed attempts the application may have; Skein compares numbers with it.
    limit: int
    #: Attempts before this one that YARN does not count.
    uncounted: int = 0

    def count(self, diagnostics_of: Callable[[int], str]) -> ApplicationAttempts:
        """The same, with what YARN says of the attempts before; errors are those of the call."""
        if self.limit == 1:
            # Then YARN starts no other, whatever became of the first.
            return self
        return replace(self, uncounted=uncounted(map(diagnostics_of, range(1, self.number))))

    @property
    def most(self) -> int:
        """The number of the last attempt, should this and all that may follow count."""
        return max(self.number, self.limit + self.uncounted)

    @property
    def is_last(self) -> bool:
        """Whether YARN starts no other when this one fails and counts."""
        return self.number >= self.most

    @property
    def failure_is_yarns(self) -> bool:
        """Whether Skein must not tell of a failure of this attempt: YARN starts another, and Skein would end it all."""
        return not self.is_last and self.number >= self.limit

    def ends_by(self, status: FinalStatus) -> bool:
        """Whether the application has ended once Skein was told so; else the next attempt is to tell it again."""
        return status is FinalStatus.SUCCEEDED or self.number >= self.limit

    def __str__(self) -> str:
        lost = f" ({self.uncounted} lost by YARN do not count)" if self.uncounted else ""
        return f"attempt {self.number} of {self.most}{lost}"


def uncounted(diagnostics: Iterable[str]) -> int:
    """How many of the attempts of which YARN says this it does not count."""
    exits = (_EXIT.search(text) for text in diagnostics)
    return sum(1 for found in exits if found is not None and int(found[1]) in _UNCOUNTED)
