"""All tests of stages share one SparkDriver. All drivers of a run share one archive of Spark's classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.spark_classes import write_classes
from tests.support.spark_driver import DriverUnderTest, spark_driver


@pytest.fixture(scope="session", autouse=True)
def written_classes(spark_classes: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The first process of the run writes the archive of Spark's classes, for all others and every driver."""
    write_classes(spark_classes, tmp_path_factory.mktemp("classes"))


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory, written_classes: None) -> Iterator[DriverUnderTest]:
    with spark_driver(tmp_path_factory.mktemp("spark")) as started:
        started.application()
        yield started
