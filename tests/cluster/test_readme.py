"""The program of the README, run as a reader runs it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

README = Path(__file__).resolve().parents[2] / "README.md"
PROGRAM = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT = "to be or not to be that is the question"


def program() -> str:
    """The one program that the README shows."""
    (text,) = PROGRAM.findall(README.read_text(encoding="utf-8"))
    return str(text)


def test_the_program_is_short() -> None:
    lines = [line for line in program().splitlines() if line.strip()]
    assert len(lines) <= 15


@pytest.mark.cluster
def test_the_program_counts_words(tmp_path: Path) -> None:
    script = tmp_path / "job.py"
    script.write_text(program(), encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=60,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(README.parent)},
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    printed = Counter(re.sub(r"^\d+> ", "", line) for line in ran.stdout.splitlines())
    # A running count: each word once for each number up to its own.
    assert printed == {
        str((word, number)): 1
        for word, count in Counter(TEXT.split()).items()
        for number in range(1, count + 1)
    }
