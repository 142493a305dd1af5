"""The jars of a service: fetched once for every pom or archive, kept in the user's cache folder.

Owner: the caller's thread; blocks while Maven runs. The folder appears under its final name only when it is
complete, so that an interrupted or simultaneous fetch never leaves half of it. Nothing else writes there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.support.services.errors import ServiceError
from tests.support.services.system_packages import MAVEN_PACKAGE, program
from yarrow.runtime.common.cache_folder import cache_folder

_FETCH_SECONDS = 900.0
#: The plugin of Maven for artifacts that no pom names.
_PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:2.8"


def jar_folder(pom: Path, kind: str) -> Path:
    """The folder with all jars that `pom` names, and those that they need; its name begins with `kind`.

    Raises ServiceError when Maven fails, MissingProgramError when it is absent.
    """
    content = pom.read_bytes()
    folder = _folder(kind, content)
    if not folder.is_dir():
        _fetch(folder, kind, ["dependency:copy-dependencies", "-DoutputDirectory=jars"], content)
    return folder


def unpacked_program(artifact: str, kind: str) -> Path:
    """The folder with the unpacked archive of an artifact, `group:name:version:type:classifier`.

    Raises ServiceError when Maven fails, MissingProgramError when it is absent.
    """
    folder = _folder(kind, artifact.encode())
    if not folder.is_dir():
        _fetch(folder, kind, [f"{_PLUGIN}:unpack", f"-Dartifact={artifact}", "-DoutputDirectory=jars"])
    return folder


def _folder(kind: str, content: bytes) -> Path:
    return cache_folder() / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}"


def _fetch(folder: Path, kind: str, goal: list[str], pom: bytes | None = None) -> None:
    """Lets Maven reach a goal that fills the folder `jars` where it runs."""
    maven = program("mvn", MAVEN_PACKAGE)
    print(f"Fetching the jars of {kind} into {folder} (up to 110 MB, once).", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        if pom is not None:
            (Path(work) / "pom.xml").write_bytes(pom)
        target = Path(work) / "jars"
        arguments = [part.replace("=jars", f"={target}") for part in goal]
        command = [maven, "-q", "-B", *arguments]
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
        if done.returncode != 0 or not any(target.glob("*.jar")):
            raise ServiceError(
                f"Maven could not fetch the jars of {kind} ({' '.join(command)}); check that it reaches its "
                f"repository. It said:\n{(done.stdout + done.stderr)[-2000:]}"
            )
        try:
            os.rename(target, folder)
        except OSError:
            # Somebody else was faster: theirs is as complete as ours.
            if not folder.is_dir():
                raise
            shutil.rmtree(target)
