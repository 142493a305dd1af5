"""`yarrow dashboard`: fetches Flink's compiled page once, for all later clusters of this user.

Owner: the main thread; blocks while Maven runs. The archive gets its final name only when it is whole and is
the expected file: its SHA-256 is pinned. Maven chooses the server.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from yarrow.client.errors import CommandError
from yarrow.runtime.config.web_pages import ARTIFACT, GROUP, SHA256, VERSION, kept_archive

_FETCH_SECONDS = 600.0


def get_dashboard(source: str | None = None, say: Callable[[str], None] = print) -> Path:
    """Keeps the archive, from the file `source` or by Maven, and prints its place; an already kept archive stays.

    Raises CommandError for another file than the expected one, or if Maven fails.
    """
    kept = kept_archive()
    if source is None and kept.is_file() and _digest(kept) == SHA256:
        say(f"Flink's dashboard {VERSION} is kept already, as {kept}.")
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".dashboard-", dir=kept.parent) as work:
        copied = Path(work) / "archive"
        if source is None:
            say(f"Getting {GROUP}:{ARTIFACT}:{VERSION} by Maven (4 MB, once).")
            _by_maven(Path(work), copied)
        else:
            _copy(source, copied)
        found = _digest(copied)
        if found != SHA256:
            raise CommandError(
                f"{source or 'the file from Maven'} is not {ARTIFACT} {VERSION}: its SHA-256 is {found},"
                f" expected {SHA256}. Nothing was kept."
            )
        copied.chmod(0o444)
        os.replace(copied, kept)
    say(
        f"Flink's dashboard {VERSION} (Apache License 2.0) is kept as {kept}."
        " Clusters started from now on show it at /."
    )
    return kept


def _copy(source: str, target: Path) -> None:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise CommandError(f"--from {source} cannot be read: {error.strerror}.") from None


def _by_maven(work: Path, target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise CommandError(
            "Maven (mvn) is not on PATH: install it (on Debian and Ubuntu the package maven), or get the file elsewhere"
            " and name it: --from PATH."
        )
    folder = work / "maven"
    artifact = f"{GROUP}:{ARTIFACT}:{VERSION}"
    command = [
        *(maven, "-q", "-B", "dependency:copy"),
        *(f"-Dartifact={artifact}", f"-DoutputDirectory={folder}"),
    ]
    try:
        done = subprocess.run(
            command, cwd=work, capture_output=True, text=True, check=False, timeout=_FETCH_SECONDS
        )
    except subprocess.TimeoutExpired:
        raise CommandError(
            f"Maven did not bring {artifact} in {_FETCH_SECONDS:g} s. Get the file elsewhere and name it: --from PATH."
        ) from None
    brought = folder / f"{ARTIFACT}-{VERSION}.jar"
    if done.returncode != 0 or not brought.is_file():
        raise CommandError(
            f"Maven could not bring {artifact}: check that Maven reaches its repository, or get the file"
            f" elsewhere and name it: --from PATH. Maven said:\n{(done.stdout + done.stderr)[-2000:]}"
        )
    os.replace(brought, target)


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
