"""What batch mode needs is checked before Java starts, and each lack is one sentence with its remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path

import pytest

from yarrow.container.batch.spark.requirements import (
    JavaInstallation,
    SparkRequirementError,
    check_interpreter,
    check_packages,
    check_requirements,
    find_java,
)

INSTALLED = {"pyspark": "4.3.0", "pyarrow": "26.0.1", "pandas": "2.3.3"}


def versions(**changes: str | None) -> Callable[[str], str]:
    known: Mapping[str, str | None] = {**INSTALLED, **changes}

    def version_of(name: str) -> str:
        found = known[name]
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    return version_of


def program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def java(home: Path, version: str) -> Path:
    return program(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2025-04-15' >&2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"pyspark": None},
            r"needs PySpark 4\.1 or newer, which .* does not have: run `.* -m pip install 'pyspark>=4\.1'`",
        ),
        ({"pyspark": "4.0.1"}, r"needs PySpark 4\.1 or newer, but .* has 4\.0\.1"),
        ({"pyspark": "3.5.10"}, "has 3.5.10"),
        ({"pyarrow": "17.0.0"}, r"needs PyArrow 18 or newer, but .* has 17\.0\.0"),
        ({"pandas": None}, "needs pandas 2.2 or newer and older than 3, which"),
        (
            {"pandas": "3.0.0rc1"},
            r"older than 3, but .* has 3\.0\.0rc1: run `.* -m pip install 'pandas>=2\.2,<3'`",
        ),
        ({"pandas": "2.1.4"}, "has 2.1.4"),
    ],
)
def test_a_package_that_does_not_fit_is_named(changes: dict[str, str | None], message: str) -> None:
    with pytest.raises(SparkRequirementError, match=message):
        check_packages(versions(**changes))


@pytest.mark.parametrize("changes", [{}, {"pyspark": "4.1"}, {"pyspark": "5.0.0.dev1"}, {"pandas": "2.2"}])
def test_packages_that_fit(changes: dict[str, str | None]) -> None:
    check_packages(versions(**changes))


def test_the_installed_packages_fit() -> None:
    check_packages()


def test_spark_runs_python_in_the_interpreter_of_the_driver() -> None:
    check_interpreter({"spark.executor.memory": "1g"})
    check_interpreter({"spark.pyspark.python": sys.executable})
    for key in ("spark.pyspark.python", "spark.pyspark.driver.python"):
        with pytest.raises(SparkRequirementError, match=f"{key} is /nowhere/python, but the driver runs"):
            check_interpreter({key: "/nowhere/python"})


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    java(tmp_path / "new", "21.0.2")
    java(tmp_path / "old", "1.8.0_292")
    path = f"/nowhere:{tmp_path / 'old' / 'bin'}"
    found = find_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": path})
    assert found == JavaInstallation(tmp_path / "new" / "bin" / "java", 21)
    with pytest.raises(SparkRequirementError, match=r"needs Java 17 or newer, but .*/old/bin/java is Java 8"):
        find_java({"PATH": path})


def test_the_release_file_spares_the_start_of_java(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "java", f"touch {tmp_path / 'started'}")
    (tmp_path / "release").write_text('IMPLEMENTOR="x"\nJAVA_VERSION="17.0.15"\n', encoding="utf-8")
    assert find_java({"JAVA_HOME": str(tmp_path)}).version == 17
    assert not (tmp_path / "started").exists()


def test_a_java_that_is_missing_or_silent_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        SparkRequirementError, match="there is no java on PATH and JAVA_HOME is not set: install"
    ):
        find_java({"PATH": str(tmp_path)})
    with pytest.raises(SparkRequirementError, match=f"JAVA_HOME={tmp_path} has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path)})
    program(tmp_path / "bin" / "java", "echo cannot load libjvm; exit 1")
    with pytest.raises(SparkRequirementError, match=r"does not tell its version \(cannot load libjvm\)"):
        find_java({"JAVA_HOME": str(tmp_path)})


def test_everything_is_checked_and_java_returned(tmp_path: Path) -> None:
    java(tmp_path, "17.0.1")
    environment = {"JAVA_HOME": str(tmp_path)}
    assert check_requirements({}, environment, versions()).version == 17
    with pytest.raises(SparkRequirementError, match="PySpark"):
        check_requirements({}, environment, versions(pyspark="4.0.0"))
    with pytest.raises(SparkRequirementError, match=r"spark\.pyspark\.python"):
        check_requirements({"spark.pyspark.python": "/nowhere"}, environment, versions())
