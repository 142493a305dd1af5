"""Archives under the hash of their content: written whole or not at all, once; and what a client remembers."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.support.counting_ids import CountingIdFactory
from tests.unit.runtime.fs.fake_webhdfs import Fault, fake_webhdfs
from yarrow.client.yarn.environment.environment_archive import PackedArchive
from yarrow.client.yarn.environment.environment_files import EnvironmentFile
from yarrow.client.yarn.environment.environment_store import EnvironmentMemory, EnvironmentStore, fingerprint
from yarrow.runtime.common.clock import ManualClock, SystemClock
from yarrow.runtime.fs.webhdfs_sessions import close_sessions
from yarrow.runtime.yarn.environment_use import note_uses

CONTENT = b"an environment"
PACKED = PackedArchive(hashlib.sha256(CONTENT).hexdigest(), len(CONTENT))


def write(output: BinaryIO) -> PackedArchive:
    output.write(CONTENT)
    return PACKED


@pytest.fixture
def store(tmp_path: Path) -> EnvironmentStore:
    return EnvironmentStore(str(tmp_path / "store"), CountingIdFactory(), ManualClock(10_000_000_000_000))


def names(store: EnvironmentStore) -> list[str]:
    return sorted(os.listdir(os.path.dirname(store.path_of("x"))))


def test_an_archive_has_the_name_of_its_content(store: EnvironmentStore) -> None:
    assert not store.holds(PACKED.digest, PACKED.size)
    store.add(write)
    assert store.holds(PACKED.digest, PACKED.size)
    assert Path(store.path_of(PACKED.digest)).read_bytes() == CONTENT
    assert names(store) == [f"{PACKED.digest}.tar.gz"]


def test_one_of_another_length_is_not_taken(store: EnvironmentStore) -> None:
    store.add(write)
    assert not store.holds(PACKED.digest, PACKED.size + 1)


def test_the_slower_of_two_clients_uses_what_the_faster_has_stored(store: EnvironmentStore) -> None:
    def overtaken(output: BinaryIO) -> PackedArchive:
        store.add(write)
        return write(output)

    assert store.add(overtaken) == PACKED
    assert names(store) == [f"{PACKED.digest}.tar.gz"]


def test_nothing_is_left_of_one_that_could_not_be_written(store: EnvironmentStore) -> None:
    def fails(output: BinaryIO) -> PackedArchive:
        output.write(CONTENT)
        raise OSError("the disk of the client is gone")

    with pytest.raises(OSError, match="is gone"):
        store.add(fails)
    assert names(store) == []


def test_what_a_killed_client_left_is_removed_after_a_day(tmp_path: Path) -> None:
    clock = ManualClock(10_000_000_000_000)
    store = EnvironmentStore(str(tmp_path), CountingIdFactory(), clock)
    left, other = tmp_path / "_upload-1", tmp_path / "somebody's"
    for file in (left, other):
        file.write_bytes(b"half")
        os.utime(file, (clock.epoch_ms() / 1000, clock.epoch_ms() / 1000))
    clock.advance(3600)
    store.add(write)
    assert left.exists()
    clock.advance(24 * 3600)
    store.add(lambda output: PackedArchive("another", output.write(b"x")))
    assert not left.exists()
    assert other.exists()


class OfOneByte:
    """Something to store that is like nothing stored before."""

    def __init__(self, digit: str) -> None:
        self.packed = PackedArchive(digit * 64, 1)

    def __call__(self, output: BinaryIO) -> PackedArchive:
        output.write(b"x")
        return self.packed


DAY = 24 * 3600


def clock_now() -> ManualClock:
    """Files have the times of the machine."""
    return ManualClock(SystemClock().epoch_ms())


def test_what_nobody_has_used_for_a_month_is_removed_when_another_is_stored(tmp_path: Path) -> None:
    clock = clock_now()
    store = EnvironmentStore(str(tmp_path), CountingIdFactory(), clock)
    unused, used, of_a_master = (OfOneByte(digit) for digit in "123")
    for one in (unused, used, of_a_master):
        store.add(one)
    (tmp_path / "notes.txt").write_text("somebody's")
    changed = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    clock.advance(20 * DAY)
    assert store.holds(used.packed.digest, 1)
    note_uses([store.path_of(of_a_master.packed.digest), str(tmp_path / ("f" * 64 + ".sh"))], clock)
    assert store.holds(unused.packed.digest, 2) is False, "looked at, and not what was wanted: no use"
    clock.advance(15 * DAY)
    store.add(OfOneByte("5"))
    left = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert sorted(name[0] for name in left) == ["2", "3", "5", "n"]
    assert left.items() >= {(name, at) for name, at in changed.items() if name[0] != "1"}


def test_a_use_is_noted_once_a_day(tmp_path: Path) -> None:
    clock = clock_now()
    store = EnvironmentStore(str(tmp_path), CountingIdFactory(), clock)
    store.add(write)
    path = Path(store.path_of(PACKED.digest))
    made = path.stat().st_atime_ns
    clock.advance(0.9 * DAY)
    assert store.holds(PACKED.digest, PACKED.size)
    assert path.stat().st_atime_ns == made
    clock.advance(0.2 * DAY)
    assert store.holds(PACKED.digest, PACKED.size)
    assert path.stat().st_atime_ns // 1_000_000 == clock.epoch_ms()


@pytest.mark.parametrize("replication", [0, 3])
def test_files_on_hdfs_have_the_times_and_copies_that_are_asked_for(tmp_path: Path, replication: int) -> None:
    copies: dict[str, str] = {}
    faults = [Fault("settimes", "IOException", "Access time for hdfs is not configured.")]
    clock = clock_now()
    with fake_webhdfs(tmp_path, faults, replications=copies) as url:
        store = EnvironmentStore(f"{url}/environments", CountingIdFactory(), clock, replication)
        store.add(write)
        assert list(copies.values()) == [str(replication) if replication else ""]
        clock.advance(40 * DAY)
        # Where no times of use are kept, nobody knows what is unused: all stays.
        store.add(OfOneByte("1"))
        assert store.holds(PACKED.digest, PACKED.size)
        clock.advance(40 * DAY)
        assert store.holds("1" * 64, 1)
        store.add(OfOneByte("2"))
        assert not store.holds(PACKED.digest, PACKED.size)
        assert store.holds("1" * 64, 1)
        close_sessions()


def test_what_was_packed_is_remembered_until_a_library_changes(tmp_path: Path) -> None:
    library = tmp_path / "libx.so.1"
    library.write_bytes(b"1")
    file = EnvironmentFile("lib/libx.so.1", str(library), 1, library.stat().st_mtime_ns, False)
    memory = EnvironmentMemory(tmp_path / "cache" / "environments.json")
    assert memory.find("key") is None
    memory.remember("key", PACKED, [file])
    found = EnvironmentMemory(tmp_path / "cache" / "environments.json").find("key")
    assert found is not None
    assert (found.digest, found.size) == (PACKED.digest, PACKED.size)
    library.write_bytes(b"12")
    assert memory.find("key") is None


def test_a_damaged_memory_costs_work_and_no_more(tmp_path: Path) -> None:
    path = tmp_path / "environments.json"
    path.write_text("{ nonsense")
    memory = EnvironmentMemory(path)
    assert memory.find("key") is None
    memory.remember("key", PACKED, [])
    assert memory.find("key") is not None


def test_only_the_latest_are_remembered(tmp_path: Path) -> None:
    memory = EnvironmentMemory(tmp_path / "environments.json")
    for number in range(20):
        memory.remember(str(number), PACKED, [])
    assert memory.find("0") is None
    assert memory.find("19") is not None


def test_a_folder_that_cannot_be_written_to_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory = EnvironmentMemory(tmp_path / "file" / "environments.json")
    memory.remember("key", PACKED, [])
    assert memory.find("key") is None


def test_the_fingerprint_follows_size_time_and_place() -> None:
    file = EnvironmentFile("lib/a.py", "/x/a.py", 1, 1, False)
    other = [
        EnvironmentFile("lib/b.py", "/x/a.py", 1, 1, False),
        EnvironmentFile("lib/a.py", "/x/a.py", 2, 1, False),
        EnvironmentFile("lib/a.py", "/x/a.py", 1, 2, False),
    ]
    assert len({fingerprint([one]) for one in (file, *other)}) == 4
    assert fingerprint([file]) == fingerprint([file])
