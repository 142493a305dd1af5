"""Requirements of batch mode: what must be installed before Java starts, checked without importing PySpark.

Owner: the calling thread. Each error is one sentence that names what was found, what is needed and what to do.
Must not start Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Final

from yarrow.runtime.common.errors import YarrowError

OLDEST_JAVA: Final = 17
OLDEST_PYSPARK: Final = (4, 1)
OLDEST_PYARROW: Final = (18,)
OLDEST_PANDAS: Final = (2, 2)
#: The first version of pandas that PySpark does not take.
PANDAS_TOO_NEW: Final = (3,)
#: Keys of Spark that name an interpreter for Python functions.
_INTERPRETER_KEYS: Final = ("spark.pyspark.python", "spark.pyspark.driver.python")
_JAVA_SECONDS: Final = 30.0
_INSTALL_JAVA: Final = f"install Java {OLDEST_JAVA} or newer, or let JAVA_HOME name one"
#: `openjdk version "17.0.15"`, and `"1.8.0_292"` of versions before 9.
_VERSION: Final = re.compile(r'version "(?:1\.)?(\d+)')


class SparkRequirementError(YarrowError):
    """Something that batch mode needs is missing, too old or too new."""


@dataclass(frozen=True, slots=True)
class JavaInstallation:
    """A Java that runs Spark."""

    executable: Path
    version: int


def check_requirements(
    configuration: Mapping[str, str],
    environment: Mapping[str, str] = os.environ,
    version_of: Callable[[str], str] = metadata.version,
) -> JavaInstallation:
    """Checks all of them; returns the Java to use.

    Raises SparkRequirementError.
    """
    check_packages(version_of)
    check_interpreter(configuration)
    return find_java(environment)


def check_packages(version_of: Callable[[str], str] = metadata.version) -> None:
    """Checks PySpark and what it imports; `version_of` raises PackageNotFoundError.

    Raises SparkRequirementError.
    """
    _check_package("pyspark", "PySpark", OLDEST_PYSPARK, None, version_of)
    _check_package("pyarrow", "PyArrow", OLDEST_PYARROW, None, version_of)
    _check_package("pandas", "pandas", OLDEST_PANDAS, PANDAS_TOO_NEW, version_of)


def _check_package(
    name: str,
    title: str,
    oldest: tuple[int, ...],
    too_new: tuple[int, ...] | None,
    version_of: Callable[[str], str],
) -> None:
    wanted = f"{name}>={_dotted(oldest)}" + (f",<{_dotted(too_new)}" if too_new else "")
    remedy = f"run `{sys.executable} -m pip install '{wanted}'`"
    needed = f"batch mode needs {title} {_dotted(oldest)} or newer" + (
        f" and older than {_dotted(too_new)}" if too_new else ""
    )
    try:
        found = version_of(name)
    except metadata.PackageNotFoundError:
        raise SparkRequirementError(f"{needed}, which {sys.executable} does not have: {remedy}") from None
    version = tuple(int(part) for part in re.findall(r"\d+", found)[:3])
    if version < oldest or (too_new is not None and version >= too_new):
        raise SparkRequirementError(f"{needed}, but {sys.executable} has {found}: {remedy}")


def check_interpreter(configuration: Mapping[str, str]) -> None:
    """Refuses another interpreter for Spark's Python processes than the one of the driver.

    Raises SparkRequirementError.
    """
    for key in _INTERPRETER_KEYS:
        wanted = configuration.get(key)
        if wanted is not None and shutil.which(wanted) != sys.executable:
            raise SparkRequirementError(
                f"{key} is {wanted}, but the driver runs {sys.executable}, and both must be the same: leave {key} out,"
                " and name the interpreter by python.executable"
            )


def find_java(environment: Mapping[str, str] = os.environ) -> JavaInstallation:
    """The Java of JAVA_HOME, else the one on PATH.

    Raises SparkRequirementError.
    """
    home = environment.get("JAVA_HOME", "")
    if home:
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise SparkRequirementError(
                f"batch mode runs on Spark, which needs Java {OLDEST_JAVA} or newer, but JAVA_HOME={home} has no"
                f" bin/java: {_INSTALL_JAVA}"
            )
    else:
        found = shutil.which("java", path=environment.get("PATH", ""))
        if found is None:
            raise SparkRequirementError(
                f"batch mode runs on Spark, which needs Java {OLDEST_JAVA} or newer, but there is no java on PATH and"
                f" JAVA_HOME is not set: {_INSTALL_JAVA}"
            )
        executable = Path(found)
    version = _java_version(executable)
    if version < OLDEST_JAVA:
        raise SparkRequirementError(
            f"batch mode runs on Spark, which needs Java {OLDEST_JAVA} or newer, but {executable} is Java {version}:"
            f" {_INSTALL_JAVA}"
        )
    return JavaInstallation(executable, version)


def _java_version(executable: Path) -> int:
    """The major version, of the installation's release file, else as the program itself says."""
    try:
        release = (executable.resolve().parent.parent / "release").read_text(encoding="utf-8")
        found = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
        if found is not None:
            return int(found[1])
    except OSError:
        pass  # Not every installation has one.
    try:
        ended = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=_JAVA_SECONDS, check=False
        )
        text = ended.stderr + ended.stdout
    except (OSError, subprocess.TimeoutExpired) as error:
        text = str(error)
    found = _VERSION.search(text)
    if found is None:
        first = text.strip().partition("\n")[0][:200]
        raise SparkRequirementError(
            f"batch mode runs on Spark, which needs Java {OLDEST_JAVA} or newer, but {executable} does not tell its"
            f" version ({first or 'no output'}): {_INSTALL_JAVA}"
        )
    return int(found[1])


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))
