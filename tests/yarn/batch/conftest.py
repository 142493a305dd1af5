"""What tests of bounded jobs on a real YARN share."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.yarn.batch.bounded_jobs import Output


@pytest.fixture(scope="session", autouse=True)
def archived_classes(written_classes: None) -> None:
    """Drivers in containers find the archive of Spark's classes."""


@pytest.fixture
def output(tmp_path: Path) -> Output:
    return Output(tmp_path / "output")
