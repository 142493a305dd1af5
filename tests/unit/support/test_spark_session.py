"""Sessions of tests: one that fails to start is not in the way of the next, and Java has the archive of its jars."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

from tests.support import spark_session as sessions
from tests.support.spark_classes import archive_flags


class Java:
    """A Java that nobody reaches."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def gateway(self) -> tuple[int, str]:
        return 1, "secret"

    def close(self) -> None:
        pass


class Gateway:
    """How PySpark would reach it."""

    is_shut = False

    def shutdown(self) -> None:
        self.is_shut = True


def test_a_session_that_fails_to_start_leaves_no_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway = Gateway()

    def fails(builder: SparkSession.Builder) -> SparkSession:
        monkeypatch.setattr(SparkContext, "_gateway", gateway)
        monkeypatch.setattr(SparkContext, "_jvm", None)
        raise ConnectionError("Java has ended")

    monkeypatch.setattr(sessions, "_Java", Java)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", fails)
    with pytest.raises(ConnectionError), sessions.spark_session(tmp_path, "test", {}):
        pass
    assert gateway.is_shut and SparkContext._gateway is None


def test_java_takes_the_archive_that_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("YARROW_SPARK_CLASSES", str(tmp_path))
    assert archive_flags() == []
    for name, day in (("a", 1), ("b", 3), ("c", 2)):
        (tmp_path / f"{name}.jsa").touch()
        os.utime(tmp_path / f"{name}.jsa", (day, day))
    assert archive_flags() == [f"-XX:SharedArchiveFile={tmp_path / 'b.jsa'}"]
