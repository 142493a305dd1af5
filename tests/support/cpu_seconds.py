"""The CPU time of tests, which stands beside their seconds in the record of a run."""

from __future__ import annotations

import resource

#: Name of the property of a test in JUnit's form.
CPU_SECONDS = "cpu_seconds"


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its child processes that have ended."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in used)
