"""Each guarantee switched off: the oracle must notice. Each test runs one plan twice, with the guarantee and without.

A guarantee is switched off in test-only subclasses or patched classes of a cluster whose workers are threads of this
process. Output that is right without the guarantee would mean that the proof by faults proves nothing about it.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from tests.cluster.embedded.waiting import wait_until
from tests.cluster.failover.programs import all_running
from tests.support.fault_jobs import JobShape, RowTimestamps, read
from tests.support.fault_runs import SETTINGS, FaultRun
from yarrow.am.checkpoint.cleaner import CheckpointsCleaner
from yarrow.am.checkpoint.completed import CompletedCheckpoint
from yarrow.am.checkpoint.coordinator import CheckpointCoordinator
from yarrow.am.checkpoint.events import Action
from yarrow.am.checkpoint.pending import PendingCheckpoint
from yarrow.am.execution.errors import failure_of
from yarrow.am.jobmaster.job_master import JobMaster
from yarrow.common.job_status import JobStatus
from yarrow.common.typeinfo import Types
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.network import barrier_handler
from yarrow.container.sources.source_hosting import SourceHosting
from yarrow.container.state.heap_sections import HeapSections
from yarrow.container.supervisor.job_connection import JobConnection
from yarrow.container.supervisor.job_slots import JobSlots
from yarrow.container.supervisor.task_executor import TaskExecutor
from yarrow.container.task.task_builder import TaskBuilder
from yarrow.datastream.connectors.base import (
    NothingAvailable,
    Sink,
    SourceReader,
    SourceReaderContext,
    SplitEnumerator,
)
from yarrow.datastream.connectors.split_reading import OnRequestEnumerator
from yarrow.datastream.functions import KeyedProcessFunction, RuntimeContext
from yarrow.datastream.state import ValueState, ValueStateDescriptor
from yarrow.datastream.stream_execution_environment import StreamExecutionEnvironment
from yarrow.embedded.local_job_client import LocalJobClient
from yarrow.embedded.loop_thread import LoopThread
from yarrow.embedded.mini_cluster import MiniCluster, mini_cluster
from yarrow.runtime.common.errors import CheckpointFailedError, FencingTokenError, JobExecutionError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, JobMasterID, attempt_place
from yarrow.runtime.data.key_groups import KeyGroupRange
from yarrow.runtime.rpc.messages import (
    COORDINATOR_SUBTASK,
    Acknowledge,
    AcknowledgeCheckpoint,
    CheckpointNotice,
    NotifyCheckpoint,
    OperatorEvent,
    RescaleRequest,
    TriggerCheckpoint,
)
from yarrow.runtime.snapshot import restored_state
from yarrow.testing import gated_source
from yarrow.testing.fault_plan import PLAN_KEY, RECORD_POINT, FaultAction, FaultPlan, FileFaultPlanner
from yarrow.testing.gated_source import GatedSource, GatedSplit, Input, key_of
from yarrow.testing.transactional_files import CommittedFiles, FileTransaction, TransactionalFiles

pytestmark = pytest.mark.fault

#: So many that rows flow for a while before and behind every gate.
ROWS = 1000
END = 2**62
#: A record in a function's hands, soon after the first completed checkpoint.
AT_A_RECORD = FaultPlan(0, RECORD_POINT, FaultAction.RAISE, 40)


@pytest.fixture(scope="module")
def cluster() -> Iterator[MiniCluster]:
    with mini_cluster(1, 2, processes=False) as running:
        yield running


class Totals(KeyedProcessFunction[str, Input, Any]):
    """(key, 0, sum of all values), put out by a timer that the key's first row alone registers."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self._total: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, value: Input, ctx: KeyedProcessFunction.Context) -> None:
        total = self._total.value()
        if total is None:
            ctx.timer_service().register_event_time_timer(END)
        self._total.update((total or 0) + value[3] + 1)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
        yield (ctx.get_current_key(), 0, self._total.value())


def totals_of(*sources: GatedSource) -> list[Any]:
    totals: dict[str, int] = defaultdict(int)
    for source in sources:
        for key, _, _, value in source.all_rows():
            totals[key] += value + 1
    return [(key, 0, total) for key, total in totals.items()]


def totals(source: type[GatedSource] = GatedSource) -> JobShape:
    """Totals over one source, at the parallelism of the job."""

    def build(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
        rows = read(env, source("l", folder, rows=ROWS)).uid("rows")
        rows.key_by(key_of, Types.STRING()).process(Totals()).uid("totals").sink_to(sink).uid("sink")

    return JobShape("totals", build, lambda: totals_of(GatedSource("l", "", rows=ROWS)))


def holds(shape: JobShape, cluster: MiniCluster, folder: Path, **changes: Any) -> None:
    """Runs the plan with everything in force."""
    FaultRun(shape, "hashmap", changes.pop("plan", AT_A_RECORD), changes).execute(cluster, folder)


def fails(shape: JobShape, cluster: MiniCluster, folder: Path, **changes: Any) -> str:
    """Runs the plan with a guarantee switched off; what the oracle says."""
    with pytest.raises(AssertionError, match=r"rows are missing|committed twice") as found:
        holds(shape, cluster, folder, **changes)
    return str(found.value)


# ---------------------------------------------------------------------- alignment


class SlowBarriers(FileFaultPlanner):
    """The barriers of the source `r` come late, each time."""

    def reached(self, point: str, detail: dict[str, object]) -> None:
        if point == "checkpoint.before-snapshot" and "source r" in str(detail.get("task", "")):
            threading.Event().wait(0.05)
        super().reached(point, detail)


def slow_barriers(arguments: str) -> SlowBarriers:
    fields = json.loads(arguments)
    return SlowBarriers(FaultPlan.from_json(fields["plan"]), fields["folder"])


def _build_two(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    left = read(env, GatedSource("l", folder, splits=2, rows=2 * ROWS))
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(RowTimestamps())
    right = env.from_source(GatedSource("r", folder, splits=1, rows=ROWS // 2), strategy, "source r")
    # In a worker of its own: its barrier is late, the other source goes on meanwhile.
    rows = left.union(right.slot_sharing_group("apart")).key_by(key_of, Types.STRING())
    rows.process(Totals()).slot_sharing_group("default").uid("totals").sink_to(sink).uid("sink")


TWO_SOURCES = JobShape(
    "two sources",
    _build_two,
    lambda: totals_of(
        GatedSource("l", "", splits=2, rows=2 * ROWS), GatedSource("r", "", splits=1, rows=ROWS // 2)
    ),
)
#: So many rows later that another checkpoint is complete, should rows have stood at their gate in the first one.
BEHIND_A_LATER_CHECKPOINT = FaultPlan(0, RECORD_POINT, FaultAction.RAISE, 600)
UNALIGNED_ARRIVAL = {
    "parallelism.default": "1",
    PLAN_KEY: f"{__name__}:slow_barriers",
    "execution.buffer-timeout.interval": "1 ms",
    "execution.checkpointing.interval": "80 ms",
}


def test_channels_stand_still_behind_their_barrier(cluster: MiniCluster, tmp_path: Path) -> None:
    holds(TWO_SOURCES, cluster, tmp_path, plan=BEHIND_A_LATER_CHECKPOINT, **UNALIGNED_ARRIVAL)


def test_without_alignment_rows_are_counted_twice(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(barrier_handler._Alignment, "blocks", False)
    fails(TWO_SOURCES, cluster, tmp_path, plan=BEHIND_A_LATER_CHECKPOINT, **UNALIGNED_ARRIVAL)


# ---------------------------------------------------------------------- commits


class Hasty(TransactionalFiles):
    """Commits what it has only prepared."""

    def pre_commit(self, transaction: FileTransaction) -> None:
        super().pre_commit(transaction)
        self.commit(transaction)


def _build_copy(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    read(env, GatedSource("l", folder, rows=ROWS)).uid("rows").sink_to(sink).uid("sink")


def _build_hasty_copy(env: StreamExecutionEnvironment, folder: str, sink: Sink[Any]) -> None:
    assert isinstance(sink, TransactionalFiles)
    _build_copy(env, folder, Hasty(sink.folder))


def _rows() -> list[Any]:
    return list(GatedSource("l", "", rows=ROWS).all_rows())


#: Prepared, but the checkpoint is never complete: rows flow behind the first one until the last gate.
AFTER_PREPARE = FaultPlan(0, "sink.after-prepare", FaultAction.RAISE, 3)


def test_commits_wait_for_the_checkpoint(cluster: MiniCluster, tmp_path: Path) -> None:
    holds(JobShape("copy", _build_copy, _rows), cluster, tmp_path, plan=AFTER_PREPARE)


def test_commits_before_the_checkpoint_is_complete_duplicate_rows(
    cluster: MiniCluster, tmp_path: Path
) -> None:
    said = fails(JobShape("copy", _build_hasty_copy, _rows), cluster, tmp_path, plan=AFTER_PREPARE)
    assert "0 rows are missing" in said


# ---------------------------------------------------------------------- offsets


class _Forgetful(gated_source._Reader):
    def snapshot_state(self, checkpoint_id: int) -> list[GatedSplit]:
        return [GatedSplit(split.number, 0, split.end) for split in super().snapshot_state(checkpoint_id)]


class ForgetfulSource(GatedSource):
    """Its readers begin restored splits from their start."""

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        return _Forgetful(self, context)


def test_readers_go_on_where_their_checkpoint_says(cluster: MiniCluster, tmp_path: Path) -> None:
    holds(totals(), cluster, tmp_path)


def test_without_offsets_rows_are_read_twice(cluster: MiniCluster, tmp_path: Path) -> None:
    fails(totals(ForgetfulSource), cluster, tmp_path)


# ---------------------------------------------------------------------- timers


def test_without_restored_timers_results_are_missing(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def register(self: HeapSections, name: str, section: Any) -> None:
        self._timers[name] = section
        for _ in self._restored.take_timers(name):
            pass

    monkeypatch.setattr(HeapSections, "register_timers", register)
    fails(totals(), cluster, tmp_path)


# ---------------------------------------------------------------------- key groups


def rescaled(cluster: MiniCluster, folder: Path) -> Counter[Any]:
    """What totals put out that ran at parallelism 1 first and at 2 afterwards."""
    gates, output = folder / "gates", folder / "output"
    gates.mkdir()
    settings = SETTINGS | {
        "parallelism.default": "1",
        "execution.checkpointing.dir": str(folder / "checkpoints"),
    }
    env = cluster.get_execution_environment(settings)
    totals().build(env, str(gates), TransactionalFiles(str(output)))
    client = env.execute_async("rescaled")
    assert isinstance(client, LocalJobClient)
    job_id = JobID(str(client.get_job_id()))
    wait_until(lambda: len(list((folder / "checkpoints").glob("*/chk-*/_metadata"))) > 0)
    LoopThread.shared().call(cluster.cluster.dispatcher.rescale_job(job_id, RescaleRequest(every=2)))
    (gates / "fired").touch()
    client.get_job_execution_result().result(180)
    assert client.get_job_status().result() is JobStatus.FINISHED
    return Counter(CommittedFiles(output).rows())


def test_a_subtask_restores_its_own_key_groups(cluster: MiniCluster, tmp_path: Path) -> None:
    assert rescaled(cluster, tmp_path) == Counter(totals().expected())


def test_foreign_key_groups_that_are_kept_put_out_twice(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Greedy(restored_state.RestoredKeyedState):
        def __init__(self, handles: Any, key_groups: KeyGroupRange, *rest: Any, **options: Any) -> None:
            super().__init__(handles, KeyGroupRange(0, 127), *rest, **options)

    monkeypatch.setattr("yarrow.container.state.heap_keyed_state.RestoredKeyedState", Greedy)
    got, expected = rescaled(cluster, tmp_path), Counter(totals().expected())
    assert got != expected
    assert got - expected


# ---------------------------------------------------------------------- late acknowledgements


class LateAcknowledgements:
    """Keeps back all acknowledgements from the second checkpoint on, until they are delivered or dropped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.keeps = True
        self.kept: list[tuple[JobMaster, AcknowledgeCheckpoint]] = []
        acknowledge = self._acknowledge = JobMaster.acknowledge_checkpoint

        async def keep(master: JobMaster, message: AcknowledgeCheckpoint) -> Acknowledge:
            if self.keeps and message.checkpoint_id > 1:
                self.kept.append((master, message))
                return Acknowledge()
            return await acknowledge(master, message)

        monkeypatch.setattr(JobMaster, "acknowledge_checkpoint", keep)

    def of_second(self) -> list[tuple[JobMaster, AcknowledgeCheckpoint]]:
        return [entry for entry in self.kept if entry[1].checkpoint_id == 2]

    async def deliver(self) -> None:
        for master, message in self.of_second():
            await self._acknowledge(master, message)


def admit_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator that takes acknowledgements of checkpoints which it has given up, and completes these."""
    given_up: dict[int, tuple[CheckpointCoordinator, PendingCheckpoint]] = {}
    abort = CheckpointCoordinator._abort

    def remember(
        self: CheckpointCoordinator, pending: PendingCheckpoint, *rest: Any, **options: Any
    ) -> list[Action]:
        given_up[pending.checkpoint_id] = self, pending
        return abort(self, pending, *rest, **options)

    def admit(cleaner: CheckpointsCleaner, message: Any) -> list[Action]:
        coordinator, pending = given_up[message.checkpoint_id]
        pending.acknowledgements[message.attempt_id] = message
        if pending.missing_tasks:
            return []
        completed = CompletedCheckpoint(
            checkpoint_id=message.checkpoint_id,
            kind=pending.kind,
            metadata=pending.metadata(coordinator._participants.job),
            directory="",
            pointer="",
        )
        coordinator.store.add(completed)
        return []

    monkeypatch.setattr(CheckpointCoordinator, "_abort", remember)
    monkeypatch.setattr(CheckpointsCleaner, "late", admit)


class SecondCheckpointUnderWay:
    """A job that copies rows and whose second checkpoint is prepared everywhere, and never complete."""

    def __init__(self, cluster: MiniCluster, folder: Path, acknowledgements: LateAcknowledgements) -> None:
        self._gates, self._output = folder / "gates", folder / "output"
        self._gates.mkdir()
        self._acknowledgements = acknowledgements
        settings = SETTINGS | {
            "parallelism.default": "1",
            "execution.checkpointing.timeout": "1 min",
            "restart-strategy.fixed-delay.attempts": "2",
        }
        env = cluster.get_execution_environment(settings)
        _build_copy(env, str(self._gates), TransactionalFiles(str(self._output)))
        client = env.execute_async("second")
        assert isinstance(client, LocalJobClient)
        self._client = client
        self._restarts = 0
        wait_until(lambda: bool(acknowledgements.of_second()))

    def fail(self) -> None:
        """The job fails, and all of its tasks run again."""
        master = self._acknowledgements.kept[0][0]
        assert isinstance(master, JobMaster)

        async def fail() -> None:
            master.fail_by_checkpoints(failure_of(CheckpointFailedError, "asked for"))

        LoopThread.shared().call(fail())
        self._restarts += 1

    def wait_for_restart(self) -> None:
        def restarted() -> bool:
            details = self._client.get_job_details().result()
            return details.restarts == self._restarts and all_running(details)

        wait_until(restarted)

    def finish(self) -> Counter[Any]:
        """What the job has put out at its end."""
        self._acknowledgements.keeps = False
        (self._gates / "fired").touch()
        # It may fail for good: transactions are committed that are not there.
        with suppress(JobExecutionError):
            self._client.get_job_execution_result().result(180)
        return Counter(CommittedFiles(self._output).rows())


def after_a_late_acknowledgement(
    cluster: MiniCluster, folder: Path, acknowledgements: LateAcknowledgements
) -> Counter[Any]:
    """What a job puts out that fails before its second checkpoint is complete, and again behind what comes late of it.

    The sink throws away at the first failure what the second checkpoint holds: nothing may go back to that.
    """
    job = SecondCheckpointUnderWay(cluster, folder, acknowledgements)
    job.fail()
    job.wait_for_restart()
    LoopThread.shared().call(acknowledgements.deliver())
    job.fail()
    return job.finish()


def test_what_comes_late_of_a_checkpoint_completes_nothing(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledgements = LateAcknowledgements(monkeypatch)
    assert after_a_late_acknowledgement(cluster, tmp_path, acknowledgements) == Counter(_rows())


def test_late_acknowledgements_that_are_taken_lose_rows(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    acknowledgements = LateAcknowledgements(monkeypatch)
    admit_late(monkeypatch)
    got = after_a_late_acknowledgement(cluster, tmp_path, acknowledgements)
    assert Counter(_rows()) - got, "rows of the second checkpoint are missing"


# ---------------------------------------------------------------------- stale tokens


class StaleMaster:
    """A JobMaster whose leadership is over and that believes the second checkpoint complete."""

    TOKEN = JobMasterID("0" * 31 + "1")

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._served: list[tuple[TaskExecutor, JobID]] = []
        trigger_checkpoint = TaskExecutor.trigger_checkpoint

        async def observed(
            executor: TaskExecutor, job_master_id: JobMasterID, trigger: TriggerCheckpoint
        ) -> Acknowledge:
            self._served.append((executor, trigger.job_id))
            return await trigger_checkpoint(executor, job_master_id, trigger)

        monkeypatch.setattr(TaskExecutor, "trigger_checkpoint", observed)

    def tell_complete(self) -> None:
        """Has the sinks commit; FencingTokenError."""
        executor, job_id = self._served[-1]
        told = NotifyCheckpoint(
            job_id=job_id, checkpoint_id=2, notice=CheckpointNotice.COMPLETED, latest_completed=2
        )
        LoopThread.shared().call(executor.notify_checkpoint(self.TOKEN, told))


def test_a_stale_token_is_refused(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = StaleMaster(monkeypatch)
    job = SecondCheckpointUnderWay(cluster, tmp_path, LateAcknowledgements(monkeypatch))
    with pytest.raises(FencingTokenError, match="refuses a message of"):
        stale.tell_complete()
    job.fail()
    assert job.finish() == Counter(_rows())


def test_a_stale_token_that_is_accepted_commits_rows_twice(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve_any(slots: JobSlots, job_id: JobID, job_master_id: JobMasterID) -> JobConnection:
        job = slots.find_job(job_id)
        assert job is not None
        return job

    monkeypatch.setattr(JobSlots, "job", serve_any)
    stale = StaleMaster(monkeypatch)
    job = SecondCheckpointUnderWay(cluster, tmp_path, LateAcknowledgements(monkeypatch))
    committed = CommittedFiles(tmp_path / "output")
    before = len(committed.rows())
    stale.tell_complete()
    wait_until(lambda: len(committed.rows()) > before)
    job.fail()
    assert job.finish() - Counter(_rows()), "rows of the second checkpoint are there twice"


# ---------------------------------------------------------------------- events of former attempts


class _OneByOne(gated_source._Reader):
    """Asks for a split when it has read the one it has; its gates are whole splits."""

    WAITS_FOR_SPLITS = False

    def _gated(self, split: GatedSplit) -> bool:
        if split.number >= 20 and not self._checkpointed:
            return True
        return split.number >= 50 and not Path(self._source.folder, "fired").exists()

    def add_splits(self, splits: Sequence[GatedSplit]) -> None:
        self._splits.extend(splits)
        self._idle = 0

    def poll(self, max_rows: int) -> Any:
        if not self._no_more and not any(split.position < split.end for split in self._splits):
            self._idle = getattr(self, "_idle", 0) + 1
            # Again and again: a lost answer shows in what is put out, not in a job that never ends.
            if self._idle % 40 == 1:
                self._context.request_split()
            return NothingAvailable(0.005)
        return super().poll(max_rows)


class _Wavering(OnRequestEnumerator[GatedSplit]):
    """Gives out splits from the other end when it is restored: an assignment of before is not made again."""

    LAST: ClassVar[int] = -1

    def handle_split_request(self, subtask: int, host: str | None) -> None:
        if self._unassigned:
            split = self._unassigned[self.LAST]
            self._unassigned.remove(split)
            self._context.assign_split(split, subtask)
        else:
            self._context.signal_no_more_splits(subtask)


class ManySplits(GatedSource):
    """Splits that are assigned one after the other."""

    def __init__(self, tag: str, folder: str, *, rows: int, **options: Any) -> None:
        super().__init__(tag, folder, splits=60, rows=40)

    def create_enumerator(self, context: Any, checkpoint: Any = None) -> SplitEnumerator[GatedSplit]:
        if checkpoint is None:
            return super().create_enumerator(context, checkpoint)
        return _Wavering(context, checkpoint)

    def create_reader(self, context: SourceReaderContext) -> SourceReader[Any, GatedSplit]:
        return _OneByOne(self, context)


MANY_SPLITS = {"execution.checkpointing.interval": "150 ms"}
#: Some splits after the first completed checkpoint, long before the second.
SPLITS_LATER = FaultPlan(0, RECORD_POINT, FaultAction.RAISE, 250)


def _many_rows() -> list[Any]:
    return totals_of(ManySplits("l", "", rows=0))


class ReplayedEvents:
    """Delivers what was sent to the former attempt of a reader once more when its next attempt has begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, checked: bool) -> None:
        self._sent: dict[str, list[OperatorEvent]] = defaultdict(list)
        self._lock = threading.Lock()
        self.replayed = 0
        deliver, deliver_early = SourceHosting.deliver, SourceHosting.deliver_early

        def noting(hosting: SourceHosting, event: OperatorEvent) -> None:
            if event.target_subtask != COORDINATOR_SUBTASK:
                with self._lock:
                    self._sent[attempt_place(event.target_attempt)[0]].append(event)
            deliver(hosting, event)

        def begun(hosting: SourceHosting, builder: TaskBuilder) -> None:
            for event in self._of_former(builder.descriptor.attempt_id):
                self.replayed += 1
                if checked:
                    deliver(hosting, event)
                else:
                    attempt = builder.descriptor.attempt_id
                    deliver(hosting, msgspec.structs.replace(event, target_attempt=attempt))
            deliver_early(hosting, builder)

        monkeypatch.setattr(SourceHosting, "deliver", noting)
        monkeypatch.setattr(SourceHosting, "deliver_early", begun)

    def _of_former(self, attempt: ExecutionAttemptID) -> list[OperatorEvent]:
        place, number = attempt_place(attempt)
        with self._lock:
            return [e for e in self._sent[place] if attempt_place(e.target_attempt)[1] < number]


def test_events_for_a_former_attempt_are_dropped(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = ReplayedEvents(monkeypatch, checked=True)
    shape = JobShape("many splits", totals(ManySplits).build, _many_rows)
    holds(shape, cluster, tmp_path, plan=SPLITS_LATER, **MANY_SPLITS)
    assert events.replayed


def test_events_for_a_former_attempt_that_are_taken_assign_splits_twice(
    cluster: MiniCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ReplayedEvents(monkeypatch, checked=False)
    shape = JobShape("many splits", totals(ManySplits).build, _many_rows)
    fails(shape, cluster, tmp_path, plan=SPLITS_LATER, **MANY_SPLITS)
