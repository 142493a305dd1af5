"""Archives that would write elsewhere, or fill the disk, are refused; those of a virtual environment are not."""

from __future__ import annotations

import io
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from yarrow.runtime.fs.archives import ArchiveLimits, UnsafeArchiveError, unpack


@dataclass(frozen=True)
class Member:
    """A file, or with a `link` a symbolic (or hard) link."""

    name: str
    content: bytes = b"x"
    link: str = ""
    hard: bool = False


Make = Callable[[Path, Sequence[Member]], Path]


def make_zip(folder: Path, members: Sequence[Member]) -> Path:
    path = folder / "a.zip"
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore", UserWarning)  # of a name that is there twice
        for member in members:
            entry = zipfile.ZipInfo(member.name)
            entry.compress_type = zipfile.ZIP_DEFLATED
            if member.link:
                entry.external_attr = (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, member.link or member.content)
    return path


def make_tar(folder: Path, members: Sequence[Member]) -> Path:
    path = folder / "a.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            entry = tarfile.TarInfo(member.name)
            entry.size = 0 if member.link else len(member.content)
            if member.link:
                entry.type = tarfile.LNKTYPE if member.hard else tarfile.SYMTYPE
                entry.linkname = member.link
            archive.addfile(entry, io.BytesIO(member.content))
    return path


both = pytest.mark.parametrize("make", [make_zip, make_tar])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "target"
    folder.mkdir()
    (tmp_path / "outside").mkdir()
    return folder


@both
@pytest.mark.parametrize(
    "members",
    [
        [Member("../evil")],
        [Member("a/../../evil")],
        [Member("{outside}/evil")],
        [Member("out", link="{outside}"), Member("out/evil")],
        [Member("out", link="../outside"), Member("out/evil")],
        [Member("a/out", link="../../outside"), Member("a/out/evil")],
        [Member("evil", link="{outside}/evil"), Member("evil")],
        [Member("out", link="{outside}"), Member("out/evil", link="/etc/hostname")],
    ],
)
def test_nothing_is_written_outside(make: Make, members: list[Member], target: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"

    def real(text: str) -> str:
        return text.replace("{outside}", str(outside))

    own = [Member(real(one.name), one.content, real(one.link), one.hard) for one in members]
    try:
        unpack(make(tmp_path, own), target)
    except (UnsafeArchiveError, tarfile.TarError, OSError):
        refused = True
    else:
        refused = False
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "evil").exists()
    # What is not refused lies in the folder, and is a plain file there.
    assert refused or any(path.name == "evil" for path in target.rglob("*"))


def test_hard_links_and_devices_are_no_way_out(target: Path, tmp_path: Path) -> None:
    (tmp_path / "outside" / "secret").write_text("s")
    with pytest.raises(UnsafeArchiveError, match="outside"):
        unpack(make_tar(tmp_path, [Member("stolen", link="../outside/secret", hard=True)]), target)
    through_a_link = [Member("out", link="../outside"), Member("stolen", link="out/secret", hard=True)]
    with pytest.raises(UnsafeArchiveError, match="outside"):
        unpack(make_tar(tmp_path, through_a_link), target)
    assert not (target / "stolen").exists()
    (target / "out").unlink()
    path = tmp_path / "fifo.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("fifo")
        entry.type = tarfile.FIFOTYPE
        archive.addfile(entry)
    with pytest.raises(UnsafeArchiveError, match="neither a file"):
        unpack(path, target)
    assert list(target.iterdir()) == []


def test_absolute_names_are_refused_also_for_the_folder_itself(target: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError, match="has an absolute path"):
        unpack(make_tar(tmp_path, [Member(f"{target}/a")]), target)
    assert list(target.iterdir()) == []


def test_a_link_that_leads_to_a_very_long_path_is_refused(target: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsafeArchiveError, match="leads to 100000 bytes of a path"):
        unpack(make_zip(tmp_path, [Member("far", link="a" * 100_000)]), target)
    assert list(target.iterdir()) == []


@both
def test_a_bomb_ends_at_the_limit(make: Make, target: Path, tmp_path: Path) -> None:
    limits = ArchiveLimits(free_bytes=1 << 16, ratio=10)
    bomb = make(tmp_path, [Member("small"), Member("huge", b"\0" * (4 << 20))])
    with pytest.raises(UnsafeArchiveError, match=r"'huge' it unpacks to 4194305 bytes, allowed are"):
        unpack(bomb, target, limits)
    assert not (target / "huge").exists()
    with pytest.raises(UnsafeArchiveError, match="allowed are 100"):
        unpack(bomb, target, ArchiveLimits(total_bytes=100))
    many = make(tmp_path, [Member(str(number)) for number in range(11)])
    with pytest.raises(UnsafeArchiveError, match="more than 10 members"):
        unpack(many, target, ArchiveLimits(members=10))


@both
def test_an_environment_with_links_is_unpacked(make: Make, target: Path, tmp_path: Path) -> None:
    members = [
        Member("bin/python", link="/usr/bin/python3"),
        Member("bin/python3", link="python"),
        Member("lib/module.py", b"value = 1\n"),
        Member("lib64", link="lib"),
    ]
    unpack(make(tmp_path, members), target)
    assert os.readlink(target / "bin" / "python") == "/usr/bin/python3"
    assert os.readlink(target / "bin" / "python3") == "python"
    assert (target / "lib64" / "module.py").read_text() == "value = 1\n"


def test_set_user_id_is_not_kept(target: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as archive:
        entry = tarfile.TarInfo("run")
        entry.mode, entry.uid, entry.uname = 0o6777, 12345, "nobody"
        archive.addfile(entry)
    unpack(path, target)
    found = (target / "run").stat()
    assert stat.S_IMODE(found.st_mode) == 0o755
    assert found.st_uid == os.getuid()
