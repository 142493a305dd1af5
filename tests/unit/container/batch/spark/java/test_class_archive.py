"""The archive of Java's classes: written once, kept for later drivers, and never in the way."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from yarrow.container.batch.spark.java import class_archive
from yarrow.container.batch.spark.java.class_archive import IDLE_SECONDS, ClassArchive
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.rpc.spark_driver_process import WRITING_SECONDS


class Installation:
    """A Java and jars, and the folders of a driver."""

    def __init__(self, folder: Path) -> None:
        self.cache, self.temporary = folder / "cache", folder / "temporary"
        self.java, self.jars = folder / "jdk" / "bin" / "java", folder / "jars"
        for made in (self.java.parent, self.jars, self.temporary):
            made.mkdir(parents=True)
        self.java.write_text("java")
        self.add_jar("a")

    def add_jar(self, name: str) -> None:
        (self.jars / f"{name}.jar").write_text(name)

    def archive(self) -> ClassArchive:
        """That of the next driver."""
        return ClassArchive(self.cache, self.java, self.jars, self.temporary, SystemClock())

    def write(self, *, to_the_end: bool = True, give_sign: Callable[[], object] = lambda: None) -> None:
        """One driver whose Java writes the archive at its end."""
        archive = self.archive()
        assert archive.is_awaited
        (argument, *_) = archive.arguments()
        archive.begin()
        Path(argument.partition("=")[2]).write_text("classes")
        if to_the_end:
            archive.keep(give_sign)


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    return Installation(tmp_path)


def flag(archive: ClassArchive) -> str:
    return next(iter(archive.arguments()), "").partition("=")[0]


def test_the_first_driver_writes_what_later_ones_use(installation: Installation) -> None:
    assert flag(installation.archive()) == "-XX:ArchiveClassesAtExit"
    installation.write()
    used = installation.archive()
    assert not used.is_awaited
    argument = used.arguments()[0]
    assert flag(used) == "-XX:SharedArchiveFile"
    assert Path(argument.partition("=")[2]).read_text() == "classes"
    assert installation.cache.stat().st_mode & 0o777 == 0o700


def test_other_jars_have_an_archive_of_their_own(installation: Installation) -> None:
    installation.write()
    installation.add_jar("b")
    assert installation.archive().is_awaited
    installation.write()
    assert not installation.archive().is_awaited


def test_those_that_were_used_last_are_kept(installation: Installation) -> None:
    for number, name in enumerate("bcd"):
        installation.write()
        installation.add_jar(name)
        for file in installation.cache.glob("*.jsa"):
            # Files of one test have nearly the same time.
            os.utime(file, ns=(file.stat().st_atime_ns, file.stat().st_mtime_ns - 10**9))
        assert len([*installation.cache.glob("*.jsa")]) == min(number + 1, 2)


def test_a_machine_that_is_too_slow_stops_trying(installation: Installation) -> None:
    for _ in range(3):
        installation.write(to_the_end=False)
    assert installation.archive().arguments() == []
    assert not installation.archive().is_awaited


@dataclass
class Writing:
    """A Java that writes the archive, and a clock that moves by waits for its end."""

    archive: ClassArchive
    new: Path
    ends_after: float
    #: Parts of a second in which the processor works for it; bytes written in a second.
    cpu: float = 0.0
    bytes: int = 0
    waited: float = 0.0
    signs: int = 0

    def __post_init__(self) -> None:
        self.new.unlink(missing_ok=True)

    def ends_within(self, seconds: float) -> bool:
        self.waited += seconds
        self.new.write_bytes(bytes(int(self.bytes * self.waited)))
        return self.waited >= self.ends_after

    def cpu_seconds(self) -> float:
        return self.cpu * self.waited

    def give_sign(self) -> None:
        self.signs += 1

    def is_awaited(self) -> bool:
        return self.archive.await_written(self, self.give_sign)


@pytest.mark.parametrize("work", [{"cpu": 0.05}, {"cpu": 2.0}, {"bytes": 10}])
def test_a_java_that_works_writes_for_longer_than_an_idle_one_may_live(
    installation: Installation, work: dict[str, Any]
) -> None:
    (argument, *_) = installation.archive().arguments()
    new = Path(argument.partition("=")[2])
    java = Writing(installation.archive(), new, ends_after=WRITING_SECONDS - 1, **work)
    assert java.is_awaited()
    assert java.signs > WRITING_SECONDS / IDLE_SECONDS
    endless = Writing(installation.archive(), new, ends_after=float("inf"), **work)
    assert not endless.is_awaited()
    assert WRITING_SECONDS <= endless.waited < WRITING_SECONDS + 1


def test_a_java_that_only_waits_is_given_up_soon(installation: Installation) -> None:
    (argument, *_) = installation.archive().arguments()
    java = Writing(installation.archive(), Path(argument.partition("=")[2]), float("inf"), cpu=0.005)
    assert not java.is_awaited()
    assert IDLE_SECONDS <= java.waited < IDLE_SECONDS + 1
    assert java.signs == 0


def test_a_folder_that_others_may_write_to_is_not_used(installation: Installation) -> None:
    installation.cache.mkdir()
    installation.cache.chmod(0o777)
    assert installation.archive().arguments() == []


def test_a_folder_that_cannot_be_made_is_done_without(installation: Installation) -> None:
    installation.cache.write_text("no folder")
    assert installation.archive().arguments() == []
    assert not installation.archive().is_awaited


def parts(installation: Installation) -> list[Path]:
    """What of the cache is neither an archive nor a count of tries."""
    return [file for file in installation.cache.iterdir() if file.suffix not in (".jsa", ".tries")]


def test_each_block_of_the_copy_is_a_sign_of_work(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(class_archive, "_BLOCK", len("cla"))
    copied: list[int] = []
    installation.write(give_sign=lambda: copied.extend(part.stat().st_size for part in parts(installation)))
    assert copied == [0, 3, 6], "what was signalled before has reached the file"
    [kept] = installation.cache.glob("*.jsa")
    assert kept.read_text() == "classes"


def test_a_copy_that_fails_leaves_nothing(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    installation.write()
    assert parts(installation) == []
    assert installation.archive().is_awaited


def test_a_driver_that_was_killed_while_it_copied_leaves_nothing_for_ever(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        # What is killed runs no `finally`.
        patch.setattr(Path, "unlink", lambda self, missing_ok=False: None)
        with pytest.raises(KeyboardInterrupt):
            installation.write(give_sign=killed)
    [left] = parts(installation)
    fresh = left.with_name(f"other{left.suffix}")
    fresh.touch()
    hours_ago = time.time() - 2 * 3600
    os.utime(left, (hours_ago, hours_ago))
    installation.archive().arguments()
    assert parts(installation) == [fresh], "another driver may copy at this moment"
