"""FileSink on WebHDFS: files roll at every checkpoint, commits are renames, leftovers go; killed where it hurts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.container.operators.sinks.sink_harness import KillAt, Killed, SinkJob, faults
from tests.unit.container.operators.sinks.sinks_under_test import RowFiles
from tests.unit.runtime.fs.fake_webhdfs import fake_webhdfs
from yarrow.common.serialization import Encoder
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner
from yarrow.runtime.fs.webhdfs_sessions import close_sessions

ROWS = [f"row {i:03}" for i in range(30)]


class RemoteFiles(RowFiles):
    """The same folder, written over the network."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder)
        self.url = url

    @property
    def sink(self) -> Sink[Any]:
        buckets = BucketAssigner.base_path_bucket_assigner()
        made = FileSink.for_row_format(self.url, Encoder.simple_string_encoder())
        return made.with_bucket_assigner(buckets).build()


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[RemoteFiles]:
    with fake_webhdfs(tmp_path) as url:
        yield RemoteFiles(tmp_path / "out", f"{url}/out")
        close_sessions()


def test_rows_are_seen_at_each_checkpoint_though_the_policy_would_wait(remote: RemoteFiles) -> None:
    assert remote.sink.blocking
    job = SinkJob(remote.sink, 1, release=remote.release)
    for end in (10, 20):
        job.write(ROWS[:end])
        job.checkpoint()
        assert sorted(remote.rows()) == ROWS[:end]
    job.end()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "occurrence"),
    [
        ("sink.before-prepare", 2),
        ("sink.after-prepare", 1),
        ("sink.mid-commit", 1),
        ("sink.mid-commit", 2),
        ("sink.after-commit", 1),
    ],
)
def test_killed(remote: RemoteFiles, point: str, occurrence: int) -> None:
    job = SinkJob(remote.sink, 2, release=remote.release)
    job.write(ROWS[:10])
    job.checkpoint()
    job.write(ROWS[:20])
    with faults(KillAt(point, occurrence)), pytest.raises(Killed):
        job.checkpoint()
    job.kill()
    job.start(3)
    job.write(ROWS)
    job.end()
    assert sorted(remote.rows()) == ROWS
    assert remote.leftovers() == []
