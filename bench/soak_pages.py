"""Every page of Flink's dashboard in a real browser, while jobs restart and after they have ended in each way.

Owner: the main thread of `bench/soak --pages`. The suite's own test shows the same pages of a job that runs and of one
that has finished.
"""

from __future__ import annotations

from collections.abc import Iterator

from bench.soak_results import Row
from bench.soak_runs import run_tests

TEST = "tests/cluster/pages/test_restarting_jobs.py"
#: How often each page is loaded.
ROUNDS = 1
#: Seconds that a round may take of each test.
ROUND_SECONDS = 1800.0


def run_pages(rounds: int = ROUNDS) -> Iterator[Row]:
    """A row for each way in which a job is made to restart, and one for jobs that have ended."""
    variables = {"YARROW_SOAK": "1", "YARROW_PAGES_ROUNDS": str(rounds)}
    return run_tests([TEST], variables, rounds * ROUND_SECONDS)
