"""The programs of the README, run as a reader runs them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cluster.embedded.waiting import DEADLINE

README = Path(__file__).resolve().parents[2] / "README.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = "to be or not to be that is the question"


#: What the program of windows prints, behind it.
OUTPUT = re.compile(r"^```\n(\('a'.*?)^```$", re.MULTILINE | re.DOTALL)


def program(number: int) -> str:
    """One of the programs that the README shows, in their order."""
    found = PROGRAM.findall(README.read_text(encoding="utf-8"))
    assert len(found) == 3
    return str(found[number])


def printed_by(number: int, folder: Path) -> list[str]:
    """The lines that a program prints."""
    script = folder / "job.py"
    script.write_text(program(number), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(README.parent)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_the_first_program_is_short() -> None:
    lines = [line for line in program(0).splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.cluster
def test_the_program_counts_words(tmp_path: Path) -> None:
    printed = Counter(re.sub(r"^\d+> ", "", line) for line in printed_by(0, tmp_path))
    # A running count: each word once for each number up to its own.
    assert printed == {
        str((word, number)): 1
        for word, count in Counter(TEXT.split()).items()
        for number in range(1, count + 1)
    }


@pytest.mark.cluster
def test_the_program_of_windows_prints_what_the_readme_shows(tmp_path: Path) -> None:
    (shown,) = OUTPUT.findall(README.read_text(encoding="utf-8"))
    assert "late: " in shown
    # The order among the keys of a window is not promised, nor that of two prints.
    assert Counter(printed_by(1, tmp_path)) == Counter(shown.splitlines())
