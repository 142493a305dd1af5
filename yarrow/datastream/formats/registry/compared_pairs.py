"""ComparedPairs: results of one comparison of two schemas, each of which may contain itself.

Owner: the thread that compares; one object serves one comparison. Must not know a form of schemas.
"""

from __future__ import annotations

from collections.abc import Callable


class ComparedPairs:
    """The faults of pairs of types, by the ids of the writer's type and the reader's.

    The caller keeps the types alive. A pair fits while its comparison runs, since what it contains decides.
    """

    def __init__(self) -> None:
        #: Pairs without a fault, the oldest first; those under comparison are among them.
        self._fitting: dict[tuple[int, int], None] = {}
        self._faults: dict[tuple[int, int], str] = {}

    def fault(self, pair: tuple[int, int], compare: Callable[[], str | None]) -> str | None:
        """Return the fault of a pair; None = it fits. Calls `compare` where the pair is new."""
        if pair in self._fitting:
            return None
        if pair in self._faults:
            return self._faults[pair]
        count = len(self._fitting)
        self._fitting[pair] = None
        found = compare()
        if found is not None:
            # Pairs found since then may fit only if this one did. A fault stays one whatever else fits.
            while len(self._fitting) > count:
                self._fitting.popitem()
            self._faults[pair] = found
        return found
