"""The kit of connectors: files and transactions pass it, and a connector whose guarantee is switched off does not."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from yarrow.datastream.connectors.base import DeliveryGuarantee, Sink, Source
from yarrow.datastream.connectors.file_source import FileSource, FileSplitEnumerator
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.testing.connectors import (
    ConnectorCheckError,
    ConnectorPlan,
    FilesAsInput,
    FilesAsOutput,
    PlanKind,
    check_connector,
    make_connector_plan,
)
from yarrow.testing.fault_plan import FaultAction, FaultPlan
from yarrow.testing.transactional_files import CommittedFiles, FileTransaction, TransactionalFiles

pytestmark = pytest.mark.fault

#: A plan of files: restored from an older savepoint. Masters die in the plans of topics and of elections.
FILE_PLANS = (28,)
#: A plan of transactions: killed twice in the commit.
TRANSACTION_PLANS = (5,)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    configuration = {"resourcemanager.taskmanager-timeout": "1 s"}
    with mini_cluster(task_executors=2, slots=2, configuration=configuration) as running:
        yield running


class Files(FilesAsInput, FilesAsOutput):
    """Files to files."""

    def __init__(self, folder: Path) -> None:
        self.input_folder = folder / "input"
        self.output_folder = folder / "output"


class Transactions(FilesAsInput):
    """Files to a TwoPhaseCommitSink."""

    kind: type[TransactionalFiles] = TransactionalFiles

    def __init__(self, folder: Path) -> None:
        self.input_folder = folder / "input"
        self._folder = folder / "output"

    def sink(self) -> Sink[str]:
        return self.kind(str(self._folder))

    def read_all(self) -> Sequence[str]:
        return CommittedFiles(self._folder).rows()

    def leftovers(self) -> Sequence[str]:
        return CommittedFiles(self._folder).leftovers()


@pytest.mark.parametrize("number", FILE_PLANS)
def test_files(number: int, cluster: MiniCluster, tmp_path: Path) -> None:
    check_connector(Files(tmp_path), make_connector_plan(number), cluster, tmp_path / "trial")


@pytest.mark.parametrize("number", TRANSACTION_PLANS)
def test_transactions(number: int, cluster: MiniCluster, tmp_path: Path) -> None:
    check_connector(Transactions(tmp_path), make_connector_plan(number), cluster, tmp_path / "trial")


# What follows is switched off, one guarantee at a time.


class CommitsInPrepare(TransactionalFiles):
    """Shows rows before the checkpoint is complete."""

    def pre_commit(self, transaction: FileTransaction) -> None:
        super().pre_commit(transaction)
        super().commit(transaction)


class CommitsOnlyItsOwn(TransactionalFiles):
    """Loses the transactions of a process that has died."""

    def open(self) -> None:
        super().open()
        self._own: set[str] = set()

    def pre_commit(self, transaction: FileTransaction) -> None:
        super().pre_commit(transaction)
        self._own.add(transaction.name)

    def commit(self, transaction: FileTransaction) -> None:
        if transaction.name in self._own:
            super().commit(transaction)
        else:
            self.abort(transaction)


class ShowsRowsInEachCommit(TransactionalFiles):
    """A commit that is repeated shows the rows again."""

    def commit(self, transaction: FileTransaction) -> None:
        kept = os.path.join(self.folder, f"kept-{transaction.name}")
        if os.path.exists(kept):
            shutil.copy(kept, os.path.join(self.folder, "committed", f"{transaction.name}{os.getpid()}"))
            return
        shutil.copy(os.path.join(self.folder, "open", transaction.name), kept)
        super().commit(transaction)


class LeavesTransactionsOpen(TransactionalFiles):
    """Looks for no leftovers."""

    def recover(self, context: Any) -> None:
        return None


class InventsRows(TransactionalFiles):
    """Writes what was never there."""

    def write(self, transaction: FileTransaction, rows: Sequence[Any], timestamps: Any) -> None:
        super().write(transaction, [f"{row}!" for row in rows], timestamps)


class _Forgetful(FileSource[str]):
    """Finds all files anew after a restore."""

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> FileSplitEnumerator:
        return super().create_enumerator(context, None)


class ForgetfulSource(Files):
    """Positions of files that were read are in no snapshot."""

    def source(self) -> Source[str, Any]:
        source = super().source()
        source.__class__ = _Forgetful
        return source


def killed_at(point: str, kind: PlanKind, times: int = 1) -> ConnectorPlan:
    return ConnectorPlan(0, kind, FaultPlan(0, point, FaultAction.KILL, times=times))


def cut_off_at(point: str, kind: PlanKind) -> ConnectorPlan:
    """The worker goes on when its successor has gone on."""
    return ConnectorPlan(0, kind, FaultPlan(0, point, FaultAction.HOLD, seconds=300.0), late=True)


SWITCHED_OFF = [
    (CommitsInPrepare, killed_at("sink.after-prepare", PlanKind.PREPARE), "too often"),
    (CommitsInPrepare, killed_at("checkpoint.before-acknowledge", PlanKind.ACKNOWLEDGEMENT), "too often"),
    (CommitsOnlyItsOwn, killed_at("sink.before-commit", PlanKind.COMPLETION), "missing"),
    (CommitsOnlyItsOwn, killed_at("checkpoint.before-notify", PlanKind.COMPLETION), "missing"),
    (ShowsRowsInEachCommit, killed_at("sink.mid-commit", PlanKind.COMMIT), "too often"),
    (ShowsRowsInEachCommit, killed_at("sink.mid-commit", PlanKind.COMMIT_TWICE, 2), "too often"),
    (ShowsRowsInEachCommit, killed_at("sink.after-commit", PlanKind.COMMITTED), "too often"),
    (LeavesTransactionsOpen, killed_at("sink.before-prepare", PlanKind.PREPARE), "left over"),
    (CommitsOnlyItsOwn, killed_at("coordinator.before-notify", PlanKind.MASTER), "missing"),
    (
        CommitsInPrepare,
        ConnectorPlan(
            0,
            PlanKind.TASK_EXECUTOR,
            FaultPlan(0, "checkpoint.before-acknowledge", FaultAction.KILL_TASK_EXECUTOR),
        ),
        "too often",
    ),
    # What a TaskExecutor commits that nobody counts on any more, its successor has committed already.
    (ShowsRowsInEachCommit, cut_off_at("sink.before-commit", PlanKind.TASK_EXECUTOR_CUT_OFF), "too often"),
]


@pytest.mark.parametrize(
    ("sink", "plan", "said"),
    SWITCHED_OFF,
    ids=[f"{sink.__name__}-{plan.kind.name}" for sink, plan, _ in SWITCHED_OFF],
)
def test_a_guarantee_that_is_switched_off_is_told(
    sink: type[TransactionalFiles], plan: ConnectorPlan, said: str, cluster: MiniCluster, tmp_path: Path
) -> None:
    connector = Transactions(tmp_path)
    connector.kind = sink
    with pytest.raises(ConnectorCheckError, match=said) as told:
        check_connector(connector, plan, cluster, tmp_path / "trial")
    assert str(told.value).startswith(str(plan)) and "make_connector_plan(0, " in str(told.value)


def test_a_sink_that_loses_rows_is_not_at_least_once(cluster: MiniCluster, tmp_path: Path) -> None:
    connector = Transactions(tmp_path)
    connector.kind, connector.guarantee = CommitsOnlyItsOwn, DeliveryGuarantee.AT_LEAST_ONCE
    plan = killed_at("checkpoint.before-notify", PlanKind.COMPLETION)
    with pytest.raises(ConnectorCheckError, match="missing"):
        check_connector(connector, plan, cluster, tmp_path / "trial")


def test_a_sink_that_invents_rows_keeps_nothing(cluster: MiniCluster, tmp_path: Path) -> None:
    connector = Transactions(tmp_path)
    connector.kind, connector.guarantee = InventsRows, DeliveryGuarantee.NONE
    plan = killed_at("sink.after-prepare", PlanKind.PREPARE)
    with pytest.raises(ConnectorCheckError, match="never put in"):
        check_connector(connector, plan, cluster, tmp_path / "trial")


def test_a_source_that_forgets_what_it_has_read_is_told(cluster: MiniCluster, tmp_path: Path) -> None:
    plan = ConnectorPlan(0, PlanKind.RESUMED)
    with pytest.raises(ConnectorCheckError, match="too often"):
        check_connector(ForgetfulSource(tmp_path), plan, cluster, tmp_path / "trial")
