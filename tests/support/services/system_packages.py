"""Java, Maven and Chromium: found on this machine, or installed by its package manager where that is possible.

Owner: the caller's thread; blocks. Installs only as root and only through apt-get; everywhere else the error
names the package. Never changes a program that is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.services.errors import MissingProgramError

#: The oldest Java that Hadoop 3.5 runs on.
JAVA_VERSION = 17
JAVA_PACKAGE = "openjdk-17-jre-headless"
MAVEN_PACKAGE = "maven"
#: A browser for tests of pages, and what drives it: one version of both.
CHROMIUM_PACKAGE = "chromium"
CHROMIUM_DRIVER_PACKAGE = "chromium-driver"
_INSTALL_SECONDS = 600.0


def java_home() -> Path:
    """The folder of a Java of at least `JAVA_VERSION`: JAVA_HOME where it is set, else that of `java` on PATH.

    Raises MissingProgramError where there is none and none can be installed, or where it is too old.
    """
    named = os.environ.get("JAVA_HOME")
    if named and os.access(Path(named) / "bin" / "java", os.X_OK):
        home = Path(named)
    else:
        home = Path(os.path.realpath(program("java", JAVA_PACKAGE))).parent.parent
    version = release_version(home)
    if version is not None and version < JAVA_VERSION:
        raise MissingProgramError(
            f"the Java in {home} is of version {version}, Hadoop needs {JAVA_VERSION} or newer: install "
            f"{JAVA_PACKAGE} and set JAVA_HOME to its folder"
        )
    return home


def release_version(home: Path) -> int | None:
    """The major version that a Java's own release file states; None where there is no such file."""
    try:
        lines = (home / "release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    stated = [line.partition("=")[2].strip('"') for line in lines if line.startswith("JAVA_VERSION=")]
    numbers = stated[0].split(".") if stated else []
    if numbers[:1] == ["1"]:
        numbers = numbers[1:]
    return int(numbers[0]) if numbers and numbers[0].isdigit() else None


def program(name: str, package: str) -> str:
    """The full path of a program, after installing `package` if that is what it takes.

    Raises MissingProgramError, naming the package, where it cannot be installed from here.
    """
    found = shutil.which(name)
    if found is None and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        _install(package)
        found = shutil.which(name)
    if found is None:
        raise MissingProgramError(
            f"{name} is missing: install it (on Debian and Ubuntu the package {package}) and put it on PATH"
        )
    return found


def _install(package: str) -> None:
    print(f"Installing the system's package {package}.", file=sys.stderr)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (["update", "-q"], ["install", "-q", "-y", "--no-install-recommends", package]):
        done = subprocess.run(
            ["apt-get", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_INSTALL_SECONDS,
        )
        if done.returncode != 0:
            raise MissingProgramError(
                f"apt-get {' '.join(command)} failed; install {package} by hand. It said:\n"
                f"{(done.stderr or done.stdout)[-1000:]}"
            )
