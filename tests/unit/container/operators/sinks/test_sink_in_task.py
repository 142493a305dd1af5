"""A sink in a task: commits come with completed checkpoints, are tried again behind the end, files close in time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.unit.container.operators.sinks.sink_harness import WITH_CHECKPOINTS
from yarrow.common.serialization import Encoder
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.file_sink import FileSink
from yarrow.datastream.connectors.file_sink_policies import BucketAssigner, RollingPolicy
from yarrow.datastream.data_stream import DataStream
from yarrow.runtime.graph.states import ExecutionState
from yarrow.testing.operator_harness import FragmentFailedError, OperatorHarness
from yarrow.testing.transactional_files import CommittedFiles, FileTransaction, TransactionalFiles


class Unreachable(TransactionalFiles):
    """Commits fail while the file `down` is there."""

    def commit(self, transaction: FileTransaction) -> None:
        if Path(self.folder, "down").exists():
            raise OSError("the outside is down")
        super().commit(transaction)


def harness(sink: Sink[Any], configuration: dict[str, str] | None = None) -> OperatorHarness:
    def fragment(stream: DataStream) -> Sequence[DataStream]:
        stream.map(str.upper).sink_to(sink)
        return []

    return OperatorHarness(fragment, configuration=configuration)


def ended(run: OperatorHarness) -> bool:
    return run.states[-1][1] is ExecutionState.FINISHED


def test_without_checkpoints_the_end_commits(tmp_path: Path) -> None:
    with harness(TransactionalFiles(str(tmp_path))) as run:
        run.push("a", "b")
        assert CommittedFiles(tmp_path).rows() == []
        run.end()
        assert ended(run)
    assert CommittedFiles(tmp_path).rows() == ["A", "B"]


def test_the_end_waits_for_a_commit_that_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    with harness(Unreachable(str(tmp_path))) as run:
        run.push("a")
        run.end()
        assert not ended(run)
        (due,) = (task.seconds_until_due(0.0) for task in run.tasks)
        assert due is not None and 0.05 <= due <= 0.1, "chance shortens it, at most to the half"
        (tmp_path / "down").unlink()
        run.advance(0.1)
        assert ended(run)
    assert CommittedFiles(tmp_path).rows() == ["A"]


def test_a_commit_that_is_given_up_fails_the_task(tmp_path: Path) -> None:
    (tmp_path / "down").touch()
    run = harness(Unreachable(str(tmp_path)), {"sink.committer.retries": "0"})
    with (
        run,
        pytest.raises(FragmentFailedError, match=r"sink 'Sink: Writer' cannot commit .*outside is down"),
    ):
        run.push("a")
        run.end()


def test_checkpoints_commit_and_the_tail_waits_for_the_last(tmp_path: Path) -> None:
    committed = CommittedFiles(tmp_path)
    with harness(TransactionalFiles(str(tmp_path)), WITH_CHECKPOINTS) as run:
        (task,) = run.tasks
        run.push("a")
        run.barrier(1)
        run.push("b")
        assert committed.rows() == []
        task.checkpoint_completed(1)
        assert committed.rows() == ["A"]
        run.barrier(2)
        task.checkpoint_aborted(2)
        run.push("c")
        run.end()
        assert not ended(run)
        assert committed.rows() == ["A"]


def test_files_close_in_time_in_a_task(tmp_path: Path) -> None:
    sink = (
        FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        .with_rolling_policy(RollingPolicy.default_rolling_policy(inactivity_interval=1000))
        .build()
    )
    with harness(sink, WITH_CHECKPOINTS) as run:
        (task,) = run.tasks
        run.push("a")
        run.advance(1.0)
        run.barrier(1)
        run.push("b")
        task.checkpoint_completed(1)
        assert [path.read_text() for path in tmp_path.glob("part-*")] == ["A\n"]
