"""One SparkDriver for all tests of stages: its start takes longer than they do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.spark_driver import DriverUnderTest, spark_driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DriverUnderTest]:
    with spark_driver(
        tmp_path_factory.mktemp("spark"), configuration={"spark.ui.enabled": "true"}
    ) as started:
        started.application()
        yield started
