"""The error about a Java that has ended by itself quotes its last words if memory has run out, else how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest

from yarrow.container.batch.spark.java.java_process import JavaProcess

_OUT_OF_MEMORY = "Terminating due to java.lang.OutOfMemoryError: Java heap space"


@pytest.mark.parametrize(
    ("script", "told"),
    [
        (
            f"echo '{_OUT_OF_MEMORY}'; echo 'BrokenPipeError: a Python process' >&2; exit 3",
            "has no memory left (Java heap space): set spark.driver.memory to more, or let functions collect",
        ),
        (
            "echo 'Terminating due to java.lang.OutOfMemoryError: Metaspace'; exit 3",
            "Java, which runs Spark, has no memory left (Metaspace)",
        ),
        (f"echo '{_OUT_OF_MEMORY}'; exit 4", "has ended with the status 4: see the log of the SparkDriver"),
        ("exit 3", "has ended with the status 3: see the log of the SparkDriver"),
        ("kill -9 $$", "has ended by signal 9"),
    ],
)
def test_the_end_of_java_is_told_with_its_cause(tmp_path: Path, script: str, told: str) -> None:
    java = tmp_path / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o700)
    process = JavaProcess(java, [], {}, tmp_path / "java.out")
    process.wait()
    error = str(process.lost())
    process.end()
    assert error.startswith("Java, which runs Spark, ")
    assert told in error
    assert ("spark.driver.memory" in error) is ("heap space" in error)
