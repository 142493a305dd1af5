"""How pytest-xdist deals the tests of this folder out to its processes, each of which has a Hadoop of its own.

By file, so that what a file shares is made once; the tests of faults that share a session are one part, and tests that
share nothing are parts of their own. On a cluster that was named all are one part: whoever kills its daemons must be
alone with it. The longest part comes first.
"""

from __future__ import annotations

import os

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

from tests.support.longest_first import put_longest_first
from tests.yarn.clusters_of_runs import SHARED

FAULTS = "tests/yarn/faults/"
#: Those among the tests of faults that start what they need, each for itself.
APART = ("test_cut_off_task_executor.py", "test_nemesis.py", "test_spare_and_rescale.py")
#: Its tests, of a minute or two each, share nothing.
NEMESIS = f"{FAULTS}test_nemesis.py"
#: Seconds of those that take longer than others with as many tests, on two cores beside two more processes.
LONG_PARTS = {
    FAULTS: 600.0,
    "tests/yarn/test_environment.py": 350.0,
    "tests/yarn/test_command_line.py": 350.0,
    "tests/yarn/batch/test_spark_drivers.py": 400.0,
    "tests/yarn/batch/test_spark_executors.py": 300.0,
    "tests/yarn/batch/test_slow_idle_and_full_executors.py": 45.0,
    "tests/yarn/test_kerberos.py": 220.0,
    "tests/yarn/test_named_environment.py": 120.0,
    f"{NEMESIS}::test_nemesis_on_yarn[1]": 116.0,
    f"{NEMESIS}::test_nemesis_on_yarn[2]": 115.0,
    f"{NEMESIS}::test_nemesis_on_standalone_masters[1]": 70.0,
    f"{NEMESIS}::test_nemesis_on_standalone_masters[2]": 90.0,
}
#: Seconds of any other test.
USUAL = 15.0


def part_of(nodeid: str) -> str:
    """The part that a test belongs to."""
    file = nodeid.partition("::")[0]
    if os.environ.get(SHARED):
        return "all"
    if file == NEMESIS:
        return nodeid
    return FAULTS if file.startswith(FAULTS) and not file.endswith(APART) else file


def sort(items: list[pytest.Item]) -> None:
    """The longest part first."""
    put_longest_first(items, part_of, LONG_PARTS, USUAL)


class Parts(LoadScopeScheduling):  # type: ignore[misc]
    """Gives a process that is about to run out of tests the next part, in the order of `sort`."""

    def __init__(self, config: pytest.Config, log: object) -> None:
        super().__init__(config, log)
        # xdist's own order is by the number of tests.
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)
