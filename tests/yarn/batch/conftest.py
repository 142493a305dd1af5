"""What tests of bounded jobs on a real YARN share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.yarn.batch.bounded_jobs import Output


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "output")
