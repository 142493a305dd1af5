"""The jars of a service: fetched once for every content of its pom, kept in the user's cache folder.

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


def jar_folder(pom: Path, kind: str) -> Path:
    """The folder with all jars that `pom` names, and those that they need; its name begins with `kind`.

    Raises ServiceError when Maven fails, MissingProgramError when it is absent.
    """
    content = pom.read_bytes()
    folder = cache_folder() / f"{kind}-{hashlib.sha256(content).hexdigest()[:16]}"
    if not folder.is_dir():
        _fetch(content, folder, kind)
    return folder


def _fetch(pom: bytes, folder: Path, kind: str) -> None:
    maven = program("mvn", MAVEN_PACKAGE)
    print(f"Fetching the jars of {kind} into {folder} (up to 100 MB, once).", file=sys.stderr)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as work:
        (Path(work) / "pom.xml").write_bytes(pom)
        target = Path(work) / "jars"
        command = [maven, "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={target}"]
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
