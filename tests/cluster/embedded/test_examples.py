"""Examples of windows, joins by time and timers, run as a reader runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]
#: What each example prints, in any order: subtasks print beside each other.
PRINTED = {
    "deduplication.py": """\
minute 0: hello
minute 1: order 12 pens
minute 4: bye
minute 61: hello""",
    "heartbeats.py": """\
blue is silent since 11 s
blue is back at 55 s
red is silent since 60 s
blue is silent since 65 s""",
    "joins/orders_and_payments.py": """\
order 2: 12 of 12 paid after 5 min
order 4: 9 of 9 paid after 1 min
order 1: 10 of 30 paid after 25 min
order 1: 20 of 30 paid after 55 min
order 3: 80 not paid within an hour""",
    "joins/quotes_of_trades.py": """\
EMCA at 1 s: 499, no quote
EMCA at 8 s: 505, +5 from the quote of 2 s
EMCA at 40 s: 520, no quote
ACME at 3 s: 1002, +2 from the quote of 1 s
ACME at 4 s: 1010, +0 from the quote of 4 s""",
    "windows/failure_rate.py": """\
minute 2: pay ALARM, 50% failed
minute 2: ship ALARM, 50% failed
minute 3: pay well, 33% failed
minute 4: pay ALARM, 50% failed
minute 7: ship well, 0% failed
minute 9: pay well, 33% failed""",
    "windows/log_failures.py": """\
08:00 2 x ERROR
08:00 3 x ERROR
08:01 1 x ERROR
late: 08:00:50 ERROR came a minute too late
08:02 1 x ERROR""",
    "windows/report_by_period.py": """\
day from 2026-01-29, Rome: 2 order(s), 25
day from 2026-01-31, Oslo: 1 order(s), 40
day from 2026-02-01, Rome: 1 order(s), 10
day from 2026-02-02, Rome: 1 order(s), 15
day from 2026-02-28, Rome: 1 order(s), 30
week from 2026-01-26, Oslo: 1 order(s), 40
week from 2026-01-26, Rome: 3 order(s), 35
week from 2026-02-02, Rome: 1 order(s), 15
week from 2026-02-23, Rome: 1 order(s), 30
month from 2026-01-01, Oslo: 1 order(s), 40
month from 2026-01-01, Rome: 2 order(s), 25
month from 2026-02-01, Rome: 3 order(s), 55""",
    "windows/top_pages.py": """\
from 0 s: / (3), /news (2)
from 60 s: /cart (2), /help (2)""",
}


@pytest.mark.parametrize("example", PRINTED)
def test_the_example_prints(example: str) -> None:
    job = subprocess.run(
        [sys.executable, str(ROOT / "examples" / example)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert job.returncode == 0, job.stderr
    printed = [line.partition("> ")[2] or line for line in job.stdout.splitlines()]
    assert sorted(printed) == sorted(PRINTED[example].splitlines())
