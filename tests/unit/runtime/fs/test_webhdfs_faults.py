"""What a restarted, failing over or read-only HDFS answers is waited out; what may have been done is looked at."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.fs.fake_webhdfs import Fault, fake_webhdfs
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.retries import Retries, TransientError, listening
from yarrow.runtime.fs.webhdfs_sessions import close_sessions, pool_of

SAFE_MODE = Fault("mkdirs", "SafeModeException", "Cannot create directory /x. Name node is in safe mode.")
#: More than a server's answer brings at once.
DATA = bytes(range(256)) * 20_000


@pytest.fixture
def faults() -> list[Fault]:
    return []


@pytest.fixture
def base(tmp_path: Path, faults: list[Fault]) -> Iterator[str]:
    former = use_hdfs_settings(HdfsSettings(retry_seconds=1.0))
    with fake_webhdfs(tmp_path, faults) as url:
        yield f"{url}/data"
        close_sessions()
    use_hdfs_settings(former)


def write(path: str, data: bytes) -> None:
    with file_system_for(path).create(path) as stream:
        stream.write(data)


def read(path: str) -> bytes:
    with file_system_for(path).open(path) as stream:
        return stream.read()


@pytest.mark.parametrize(
    "fault",
    [
        Fault("open", "EOFException", "End of File Exception between local host and destination host"),
        Fault("open", "StandbyException"),
        Fault("open", "RetriableException", times=2),
        Fault("open", "IOException", "Failed to find datanode, suggest to check cluster health."),
        Fault("open", "IOException", "No active and not excluded nodes contain this block"),
        Fault("open", half=DATA[:1000]),
        Fault("open"),
        Fault("getfilestatus", "EOFException"),
        Fault("getfilestatus"),
    ],
    ids=lambda fault: f"{fault.operation}-{fault.exception or fault.half[:1]}",
)
def test_reading_goes_on(base: str, faults: list[Fault], fault: Fault) -> None:
    write(f"{base}/file", DATA)
    faults.append(Fault(**vars(fault)))
    assert read(f"{base}/file") == DATA
    assert faults[0].times == 0, "the fault has happened"


@pytest.mark.parametrize(
    "fault",
    [
        Fault("create", "SafeModeException", has_data=True),
        Fault("create", "RetriableException"),
        Fault("create", "StandbyException", times=3),
        Fault("create"),
    ],
    ids=lambda fault: fault.exception,
)
def test_what_was_not_written_is_written_again(base: str, faults: list[Fault], fault: Fault) -> None:
    faults.append(Fault(**vars(fault)))
    write(f"{base}/file", b"content")
    assert read(f"{base}/file") == b"content"
    assert faults[0].times == 0


def test_what_may_be_there_is_not_written_again(base: str, faults: list[Fault]) -> None:
    faults.append(Fault("create", has_data=True, after=True))
    with pytest.raises(FileSystemError, match="a part of the file may exist"):
        write(f"{base}/file", b"content")


def test_a_rename_whose_answer_was_lost_has_happened(base: str, faults: list[Fault]) -> None:
    write(f"{base}/one", b"1")
    faults.append(Fault("rename", after=True))
    file_system_for(base).rename(f"{base}/one", f"{base}/two")
    assert [entry.name for entry in file_system_for(base).list(base)] == ["two"]


def test_a_rename_that_was_refused_for_a_while_happens(base: str, faults: list[Fault]) -> None:
    write(f"{base}/one", b"1")
    faults += [Fault("rename", "SafeModeException"), Fault("rename"), Fault("delete", "StandbyException")]
    files = file_system_for(base)
    files.rename(f"{base}/one", f"{base}/two")
    assert read(f"{base}/two") == b"1"
    assert files.delete(f"{base}/two")


def test_safe_mode_is_named_with_the_time_tried(base: str, faults: list[Fault]) -> None:
    faults.append(Fault(**vars(SAFE_MODE) | {"times": 1000}))
    with pytest.raises(
        FileSystemError, match=r"in safe mode.*tried \d+ times in 1\.\d s \(fs\.webhdfs\.retry-timeout is 1 s"
    ):
        file_system_for(base).make_dirs(f"{base}/folder")


def test_a_name_node_that_is_away_for_a_moment(base: str, tmp_path: Path) -> None:
    port = int(base.split(":")[2].partition("/")[0])
    with fake_webhdfs(tmp_path) as url:
        other = int(url.rpartition(":")[2])
    assert other != port
    again = threading.Event()

    def serve() -> None:
        with fake_webhdfs(tmp_path, port=other):
            again.wait(120)

    timer = threading.Timer(0.2, serve)
    timer.start()
    try:
        file_system_for(url).make_dirs(f"{url}/folder")
        assert file_system_for(url).status(f"{url}/folder").is_dir
    finally:
        close_sessions()
        again.set()
        timer.join()


def test_pauses_grow_and_end_with_the_time() -> None:
    clock, pauses = ManualClock(), []

    def wait(seconds: float) -> None:
        pauses.append(seconds)
        clock.advance(seconds)

    def attempt(failures: int) -> None:
        raise TransientError("not yet")

    with pytest.raises(FileSystemError, match=r"not yet; tried \d+ times in 20\.0 s \(a\.key is 20 s\)"):
        Retries(20.0, "a.key", clock, wait).run(attempt)
    assert pauses[:4] == [0.1, 0.2, 0.4, 0.8]
    assert max(pauses) == 5.0
    assert sum(pauses) == pytest.approx(20.0)


@pytest.mark.parametrize(
    ("paths", "hears"),
    [
        (("hdfs://one:9/checkpoints/job/chk-1/state",), True),
        (("/checkpoints/job/chk-1",), True),
        (("hdfs://one/trash/_x", "hdfs://one/checkpoints/job/chk-1/_metadata"), True),
        (("hdfs://one:9/checkpoints/job/chk-10/state",), False),
        (("hdfs://one:9/copies/checkpoints/job/chk-1/state",), False),
        (("hdfs://one:9/checkpoints/job",), False),
        ((), False),
    ],
)
def test_of_repetitions_hears_who_listens_to_a_folder_above(paths: tuple[str, ...], hears: bool) -> None:
    heard: list[str] = []

    def attempt(failures: int) -> None:
        if not failures:
            raise TransientError("/checkpoints/job/chk-1 is what the text names")

    with listening("hdfs://one:9/checkpoints/job/chk-1", heard.append):
        Retries(20.0, "a.key", ManualClock(), lambda seconds: None).run(attempt, *paths)
    assert bool(heard) is hears


def test_a_session_has_one_borrower_at_a_time() -> None:
    pool = pool_of("hdfs://nowhere:2", ("http://nowhere:1",))
    with pool.session() as first, pool.session() as second:
        assert first is not second
    with pool.session() as third:
        assert third in (first, second)
    close_sessions()
