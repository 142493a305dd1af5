"""How pytest-xdist deals the tests of this folder out to its processes, each of which has a Hadoop of its own.

By file, so that what a file shares is made once; the tests of faults that share a session are one part. On a cluster
that was named all are one part: whoever kills its daemons must be alone with it.
"""

from __future__ import annotations

import os

from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.yarn.clusters_of_runs import SHARED

FAULTS = "tests/yarn/faults/"
#: Those among the tests of faults that start what they need, each for itself.
APART = ("test_cut_off_task_executor.py", "test_nemesis.py", "test_spare_and_rescale.py")


def part_of(nodeid: str) -> str:
    """The part that a test belongs to."""
    file = nodeid.partition("::")[0]
    if os.environ.get(SHARED):
        return "all"
    return FAULTS if file.startswith(FAULTS) and not file.endswith(APART) else file


class Parts(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process that is about to run out of tests another part, the one with the most tests first."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)
