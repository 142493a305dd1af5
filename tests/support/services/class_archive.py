"""The classes of a service as Java has read them (class data sharing): daemons that start often map one file.

Owner: the caller's thread; `write` blocks for some twenty seconds of CPU time, once for each Java and folder of jars.
The first daemons list the classes that they load, and the end of their cluster makes the archive of these lists. Java
starts without an archive that another Java or other jars have made. On the class path no folder may stand before the
jars. Only tests and tools use it: the archive lies in the user's cache folder beside the jars.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import uuid
from contextlib import suppress
from pathlib import Path

_WRITING_SECONDS = 900.0
_ARCHIVE = "classes.jsa"
#: There if Java could not write the archive: no later cluster tries again.
_REFUSED = "refused.log"
#: Java names each class that it leaves out, on standard output, where callers expect a program's own words.
_QUIET = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def use_flags(java_home: str, jars: Path) -> list[str]:
    """Java's flags that use the archive; none where there is no archive."""
    archive = _folder(java_home, jars) / _ARCHIVE
    return [f"-XX:SharedArchiveFile={archive}", *_QUIET] if archive.exists() else []


def daemon_flags(java_home: str, jars: Path) -> list[str]:
    """Flags of a daemon: those that use the archive, or else that list the daemon's classes for it."""
    folder = _folder(java_home, jars)
    if flags := use_flags(java_home, jars):
        return flags
    if (folder / _REFUSED).exists():
        return []
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return [f"-XX:DumpLoadedClassList={folder / uuid.uuid4().hex}.list"]


def write(java_home: str, jars: Path) -> None:
    """Makes the archive of the lists that ended daemons have left; nothing where there is one, or no list.

    One process does so at a time, and no other waits for it.
    """
    folder = _folder(java_home, jars)
    if (folder / _ARCHIVE).exists() or not any(folder.glob("*.list")):
        return
    with open(folder / "lock", "w", encoding="utf-8") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not (folder / _ARCHIVE).exists():
            _write(java_home, jars, folder)


def _write(java_home: str, jars: Path, folder: Path) -> None:
    lists = sorted(folder.glob("*.list"))
    classes, part = folder / "classes.all", folder / "classes.part"
    classes.write_text("".join(sorted(set().union(*map(_whole_lines, lists)))), encoding="utf-8")
    part.unlink(missing_ok=True)
    command = [
        _java(java_home),
        "-Xshare:dump",
        # As the daemons': an archive holds objects in the form of a collector.
        "-XX:+UseSerialGC",
        f"-XX:SharedClassListFile={classes}",
        f"-XX:SharedArchiveFile={part}",
        "-cp",
        f"{jars}/*",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_WRITING_SECONDS)
    if done.returncode == 0 and part.exists():
        os.replace(part, folder / _ARCHIVE)
    else:
        (folder / _REFUSED).write_text(done.stdout + done.stderr, encoding="utf-8")
    for file in lists:
        file.unlink(missing_ok=True)


def _whole_lines(file: Path) -> set[str]:
    """The lines of a list; a killed daemon may have left half a line at its end."""
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True)
    return {line for line in lines if line.endswith("\n") and not line.startswith("#")}


def _folder(java_home: str, jars: Path) -> Path:
    """Beside the jars, one for each Java: an archive serves the Java alone that has written it."""
    release = Path(java_home) / "release"
    java = release.read_bytes() if release.exists() else java_home.encode()
    return jars.with_name(f"{jars.name}-classes-{hashlib.sha256(java).hexdigest()[:12]}")


def _java(java_home: str) -> str:
    return str(Path(java_home) / "bin" / "java")
