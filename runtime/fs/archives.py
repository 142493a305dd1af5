"""Archives that a user ships, unpacked within limits and nowhere but in their own folder.

Owner: any thread; blocking. Names and links of an archive are not trusted: nothing is written above the
folder, nor through a link of the archive. A small file that unpacks to a huge one ends at a limit, before the
disk is full.
"""

from __future__ import annotations

import os
import stat
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from yarrow.runtime.common.errors import InvalidProgramError

_LONGEST_PATH = 4096


@dataclass(frozen=True, slots=True)
class ArchiveLimits:
    """The most that one archive may unpack to."""

    members: int = 500_000
    total_bytes: int = 32 << 30
    #: Bytes for each byte of the archive; below `free_bytes` any ratio will do.
    ratio: int = 200
    free_bytes: int = 256 << 20


class UnsafeArchiveError(InvalidProgramError):
    """An archive goes beyond its folder or a limit; the message names the member."""


def unpack(source: Path, target: Path, limits: ArchiveLimits = ArchiveLimits()) -> None:
    """Unpacks a zip or tar file of any name, with the modes and links that it holds.

    Links may lead anywhere, as those of a virtual environment do; nothing is written through them. Raises
    UnsafeArchiveError, and what `zipfile` and `tarfile` raise.
    """
    meter = _Meter(source, limits)
    target = Path(os.path.realpath(target))
    if zipfile.is_zipfile(source):
        _unpack_zip(source, target, meter)
    else:
        _unpack_tar(source, target, meter)


class _Meter:
    """A counter of the unpacked members and bytes."""

    def __init__(self, source: Path, limits: ArchiveLimits) -> None:
        self._limits = limits
        self._allowed = min(limits.total_bytes, max(limits.free_bytes, limits.ratio * source.stat().st_size))
        self._members = 0
        self._bytes = 0

    def add(self, name: str, size: int) -> None:
        self._members += 1
        self._bytes += size
        if self._members > self._limits.members:
            raise UnsafeArchiveError(
                f"it has more than {self._limits.members} members: ship several archives"
            )
        if self._bytes > self._allowed:
            raise UnsafeArchiveError(
                f"with {name!r} it unpacks to {self._bytes} bytes, allowed are {self._allowed} for its size: ship"
                " several archives, or files that compress less"
            )


def _unpack_tar(source: Path, target: Path, meter: _Meter) -> None:
    def checked(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo:
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            raise UnsafeArchiveError(f"{member.name!r} is neither a file nor a folder nor a link")
        if os.path.isabs(member.name):
            raise UnsafeArchiveError(f"{member.name!r} has an absolute path")
        _check_inside(member.name, target)
        if member.islnk():
            _check_inside(member.linkname, target)
        meter.add(member.name, member.size if member.isreg() else 0)
        if member.isdir():
            # What comes after it must find room there.
            member = member.replace(mode=member.mode | stat.S_IRWXU, deep=False)
        # Modes without bits that belong to a system's own files; the owner is the user who unpacks.
        safe = tarfile.tar_filter(member, path)
        return safe.replace(uid=None, gid=None, uname=None, gname=None, deep=False)  # type: ignore[arg-type]

    with tarfile.open(source) as archive:
        for member in archive:
            archive.extract(member, target, filter=checked)


def _unpack_zip(source: Path, target: Path, meter: _Meter) -> None:
    links: list[tuple[Path, str]] = []
    with zipfile.ZipFile(source) as zipped:
        for entry in zipped.infolist():
            meter.add(entry.filename, entry.file_size)
            place = _check_inside(entry.filename, target)
            mode = entry.external_attr >> 16
            if stat.S_ISLNK(mode):
                if entry.file_size > _LONGEST_PATH:
                    raise UnsafeArchiveError(
                        f"the link {entry.filename!r} leads to {entry.file_size} bytes of a path"
                    )
                links.append((place, zipped.read(entry).decode()))
                continue
            zipped.extract(entry, target)
            if mode and not entry.is_dir():
                os.chmod(place, stat.S_IMODE(mode) & 0o755 | stat.S_IRUSR)
    # Last, so that nothing is written through them.
    for place, goal in links:
        place.parent.mkdir(parents=True, exist_ok=True)
        if os.path.realpath(place.parent) != str(place.parent):
            raise UnsafeArchiveError(f"the link {place.name!r} lies behind another link")
        place.unlink(missing_ok=True)
        place.symlink_to(goal)


def _check_inside(name: str, target: Path) -> Path:
    """The place of a member; UnsafeArchiveError when it is not below `target`, by its name or by links on the way."""
    place = Path(os.path.normpath(target / name))
    parent = Path(os.path.realpath(place.parent))
    if ".." in Path(name).parts or not (
        place.is_relative_to(target) and (parent.is_relative_to(target) or place == target)
    ):
        raise UnsafeArchiveError(f"{name!r} lies outside of the folder that it is unpacked into")
    return place
