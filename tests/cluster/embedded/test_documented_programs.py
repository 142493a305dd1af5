"""The programs of some pages of docs, run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).resolve().parents[3]
_LINES = r"((?:(?!^```).)*)"
#: A program, and behind it what it prints. A program without a block behind it is a part of one.
SHOWN = re.compile(rf"^```python\n{_LINES}^```${_LINES}^```\n{_LINES}^```$", re.MULTILINE | re.DOTALL)
PROGRAMS = {
    f"{page} {number}": (program, shown)
    for page in ("async", "cep", "event_time", "joins", "loops", "windows")
    for number, (program, _, shown) in enumerate(
        SHOWN.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
    )
}


@pytest.mark.parametrize("which", PROGRAMS)
def test_the_page_shows_what_its_programs_print(which: str, tmp_path: Path) -> None:
    program, shown = PROGRAMS[which]
    script = tmp_path / "job.py"
    script.write_text(program, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert sorted(ran.stdout.splitlines()) == sorted(shown.splitlines())
