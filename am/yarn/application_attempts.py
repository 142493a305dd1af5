"""Attempts of an application: the number of this one, the limit, and who reports a failed one.

Owner: the main thread of the ApplicationMaster; `count` blocks for a few reads. YARN does not count attempts
that it has ended itself or lost: with a node, with its disks, or to another queue (RMAppAttempt in Hadoop).
Skein does not know of that. When an attempt whose number has reached the limit fails, Skein reports the end
of the application. For an earlier attempt it reports no end except SUCCEEDED.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Final

from yarrow.runtime.yarn.gateways import FinalStatus

#: Exit statuses of a master's container that YARN does not count: lost or released, disks failed, preempted,
#: ended by the ResourceManager.
_UNCOUNTED: Final = frozenset({-100, -101, -102, -106})
_EXIT: Final = re.compile(r"exited with\s+exitCode: (-?\d+)")


@dataclass(frozen=True, slots=True)
class ApplicationAttempts:
    """The attempts of an application, seen from one of them."""

    #: Number of this attempt, from 1.
    number: int
    #: Allowed number of failed attempts; Skein compares attempt numbers with it.
    limit: int
    #: Number of earlier attempts that YARN does not count.
    uncounted: int = 0

    def count(self, diagnostics_of: Callable[[int], str]) -> ApplicationAttempts:
        """A copy with YARN's facts about the earlier attempts; raises the errors of the call."""
        if self.limit == 1:
            # Then YARN starts no other attempt, whether it counts the first or not.
            return self
        return replace(self, uncounted=uncounted(map(diagnostics_of, range(1, self.number))))

    @property
    def most(self) -> int:
        """The number of the last attempt, if YARN counts this and all later ones."""
        return max(self.number, self.limit + self.uncounted)

    @property
    def is_last(self) -> bool:
        """Whether YARN starts no other attempt after this one has failed and counts."""
        return self.number >= self.most

    @property
    def failure_is_yarns(self) -> bool:
        """Whether Skein must hide a failure of this attempt: YARN starts another, and a report would end both."""
        return not self.is_last and self.number >= self.limit

    def ends_by(self, status: FinalStatus) -> bool:
        """Whether the application has ended once Skein has this status; else the next attempt must report it again."""
        return status is FinalStatus.SUCCEEDED or self.number >= self.limit

    def __str__(self) -> str:
        lost = f" ({self.uncounted} lost by YARN do not count)" if self.uncounted else ""
        return f"attempt {self.number} of {self.most}{lost}"


def uncounted(diagnostics: Iterable[str]) -> int:
    """The number of attempts that YARN does not count, judged by their diagnostics."""
    exits = (_EXIT.search(text) for text in diagnostics)
    return sum(1 for found in exits if found is not None and int(found[1]) in _UNCOUNTED)
