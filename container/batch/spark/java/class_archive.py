"""ClassArchive: the classes of Spark as Java has read and checked them, kept in a file for the user's next drivers.

Owner: the thread that starts or ends Java. Java writes the file at the end of the first driver that has finished a
job. In later ones Java maps it into memory (class data sharing). It compares the file with its own version and all
jars, and does without it if something differs. A driver that cannot read or write it starts as fast as without.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.rpc.spark_driver_process import WRITING_SECONDS

_log = logging.getLogger(__name__)
#: Files that are kept: one for each Java and each set of jars that was used last. Each has some 160 MB.
_KEPT_FILES: Final = 2
#: What the name of an archive ends with while it is copied, and seconds after which nobody copies it any more.
_PART: Final = ".part"
_STALE_SECONDS: Final = 3600.0
#: Drivers that try to write it: a machine that is too slow shall not pay at the end of each.
_MOST_TRIES: Final = 3
#: Java names each class that it leaves out.
_QUIET: Final = ("-Xlog:cds=error", "-Xlog:cds+dynamic=error")
#: Seconds after which a Java is killed that has done nothing for it.
IDLE_SECONDS: Final = 15.0
#: Seconds between two looks at what Java does.
_LOOK: Final = 0.5
#: Seconds of the processor that are work: a Java that only waits uses some thousandths of each second.
_LEAST_WORK: Final = 0.2
#: Bytes that are copied between two signs of work: a slow home takes them within seconds.
_BLOCK: Final = 4 << 20


class EndingJava(Protocol):
    """What of an ending Java tells whether it works (JavaProcess)."""

    def ends_within(self, seconds: float) -> bool:
        """Whether it ends within that time."""
        ...

    def cpu_seconds(self) -> float:
        """Seconds of the processor that it has used so far."""
        ...


class ClassArchive:
    """The archive for one Java and one folder of jars."""

    def __init__(self, folder: Path, java: Path, jars: Path, temporary: Path, clock: Clock) -> None:
        """`folder` keeps archives; it is made for this user alone. `temporary` takes a new one while it is written."""
        self._folder = folder
        self._clock = clock
        self._file = folder / f"{_fingerprint(java, jars)}.jsa"
        #: Has one byte for each try to write the archive.
        self._tries = self._file.with_suffix(".tries")
        self._new = temporary / "classes.jsa"
        usable = _is_private(folder)
        self._is_there = usable and self._file.exists()
        #: Whether Java writes one at its end.
        self.is_awaited = usable and not self._is_there and _size_of(self._tries) < _MOST_TRIES

    def arguments(self) -> list[str]:
        """Java's arguments: to use the archive, or to write it. Removes what drivers left that were killed."""
        self._remove_stale_parts()
        if self._is_there:
            with contextlib.suppress(OSError):
                os.utime(self._file)
            return [f"-XX:SharedArchiveFile={self._file}", *_QUIET]
        return [f"-XX:ArchiveClassesAtExit={self._new}", *_QUIET] if self.is_awaited else []

    def begin(self) -> None:
        """Notes that Java begins to write it."""
        _log.info("Java writes its classes for later drivers, once, into %s", self._file)
        with contextlib.suppress(OSError), self._tries.open("ab") as tries:
            tries.write(b".")

    def await_written(self, java: EndingJava, give_sign: Callable[[], object]) -> bool:
        """Waits while an ending Java writes it. False = Java is to be killed: it does nothing, or takes too long.

        `give_sign` is called whenever Java is seen to work: who waits for the driver's end is to know.
        """
        waited = idle = 0.0
        used, written = java.cpu_seconds(), _size_of(self._new)
        while waited < WRITING_SECONDS and idle < IDLE_SECONDS:
            if java.ends_within(_LOOK):
                return True
            waited, idle = waited + _LOOK, idle + _LOOK
            used_now, written_now = java.cpu_seconds(), _size_of(self._new)
            if used_now - used >= _LEAST_WORK or written_now > written:
                used, written, idle = used_now, written_now, 0.0
                give_sign()
        return False

    def keep(self, give_sign: Callable[[], object]) -> None:
        """Keeps the archive that Java has written to its end, and removes those that were used longest ago.

        `give_sign` is called before each block of the copy, as while Java writes.
        """
        if not self._new.exists():
            return
        try:
            self._copy(give_sign)
            self._tries.unlink(missing_ok=True)
            for old in sorted(self._folder.glob("*.jsa"), key=_used_at)[:-_KEPT_FILES]:
                old.unlink(missing_ok=True)
        except OSError as error:
            _log.info("the archive of Java's classes could not be kept in %s: %s", self._folder, error)

    def _copy(self, give_sign: Callable[[], object]) -> None:
        """Puts the new archive in its place, all of it or nothing. Raises OSError."""
        # Hosts that share this home may write at the same time: a process id would not tell them apart.
        descriptor, part = tempfile.mkstemp(prefix=f"{self._file.stem}.", suffix=_PART, dir=self._folder)
        try:
            with open(descriptor, "wb") as target, self._new.open("rb") as source:
                for block in iter(partial(source.read, _BLOCK), b""):
                    give_sign()
                    target.write(block)
                    # Else the close would send all of it to a home on another host, without a sign.
                    target.flush()
                    os.fsync(descriptor)
            os.replace(part, self._file)
        finally:
            Path(part).unlink(missing_ok=True)

    def _remove_stale_parts(self) -> None:
        """Removes what drivers left that were killed while they copied."""
        with contextlib.suppress(OSError):
            for part in self._folder.glob(f"*{_PART}"):
                if _used_at(part) < self._clock.epoch_ms() / 1000 - _STALE_SECONDS:
                    part.unlink(missing_ok=True)


def _fingerprint(java: Path, jars: Path) -> str:
    """Names what the archive is made of: another Java or other jars have another archive."""
    found = hashlib.sha256()
    real = java.resolve()
    for path in (real, real.parent.parent / "release", *sorted(jars.glob("*.jar"))):
        with contextlib.suppress(OSError):
            status = path.stat()
            found.update(f"{path}\n{status.st_size}\n{status.st_mtime_ns}\n".encode())
    return found.hexdigest()[:32]


def _is_private(folder: Path) -> bool:
    """Makes the folder; False if somebody else could write to it: Java runs what lies there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        _log.info("no archive of Java's classes: %s", error)
        return False
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    )


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _used_at(file: Path) -> float:
    try:
        return file.stat().st_mtime
    except OSError:
        return 0.0
