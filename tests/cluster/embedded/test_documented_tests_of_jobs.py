"""The test on a cluster that docs/testing.md shows, run by pytest with the fixtures of yarrow.testing."""

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


def test_the_documented_test_of_a_job_holds(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "test_page.py").write_text("\n".join(blocks), encoding="utf-8")
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            "-k",
            "over_a_crash or connector_keeps",
            "test_page.py",
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "2 passed" in ran.stdout
