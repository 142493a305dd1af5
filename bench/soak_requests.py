"""Requests to REST made up by the hundred for each operation: the suite's own test, which makes a few, with more.

Owner: the main thread of `bench/soak --requests`. A failure names the seed that repeats it.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.soak_results import Row
from bench.soak_runs import run_tests

TEST = "tests/unit/am/rest/test_schema_conformance.py"
#: Examples of each operation; the suite has three.
EXAMPLES = 200
#: Seconds for each of the two tests.
LIMIT = 3600.0


def run_requests(examples: int = EXAMPLES) -> Iterator[Row]:
    """A row for requests that are valid, and one for those that are not."""
    return run_tests([TEST], {"YARROW_REQUESTS_EXAMPLES": str(examples)}, LIMIT)
