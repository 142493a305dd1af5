"""JobTasks: the tasks of a worker: deployment, cancellation, operator events, collect credit, state reports.

Owner: the worker's task thread; the report thread may call `reports`. Tasks of blocking vertices run on
threads of their own, all others on the worker's one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from yarrow.container.codegen.code_writer import CompiledCode
from yarrow.container.network.input_gate import InputGate
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.operators.base import CollectMessage, Operator, ReaderProgress, RestoredState
from yarrow.container.operators.sinks.collecting import CollectingOperator
from yarrow.container.protocol.failure import failure_cause
from yarrow.container.protocol.worker_protocol import (
    CurrentUserCall,
    EmitCollectRows,
    EmitWatermarkReport,
    EndOfDataReached,
    FromWorker,
    OutputLines,
    SubmitTasks,
    TaskStateChanged,
    WorkerSettings,
)
from yarrow.container.sources.source_hosting import SourceHosting, hosts_enumerator
from yarrow.container.task.accumulated_values import accumulated
from yarrow.container.task.checkpointing.job_storages import JobStorages
from yarrow.container.task.checkpointing.restoring import FetchedState
from yarrow.container.task.checkpointing.snapshot_thread import SnapshotThread
from yarrow.container.task.checkpointing.worker_checkpoints import WorkerCheckpoints
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_builder import TaskBuilder, TaskHooks, position_of
from yarrow.container.task.task_metrics import register_task_metrics
from yarrow.container.task.task_thread import TaskThread
from yarrow.container.worker.current_call import ChainLines, CurrentCallWriter
from yarrow.container.worker.job_code import install_user_code
from yarrow.container.worker.output_capture import CapturedOutput
from yarrow.container.worker.user_logs import use_client_levels
from yarrow.container.worker.worker_words import WorkerWords
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.config.options import execution, testing
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.data.elements import BarrierAlignment, CheckpointBarrier
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import (
    CheckpointNotice,
    CollectRows,
    FailureCause,
    NotifyCheckpoint,
    TaskExecutionStateUpdate,
    TaskMetrics,
    TaskTimeReport,
    TriggerCheckpoint,
    WatermarkBounds,
    WatermarkReport,
)
from yarrow.runtime.security.result_proof import result_key


class _Running:
    """A task with its thread and its builder."""

    def __init__(self, task: StreamTask, thread: TaskThread, builder: TaskBuilder) -> None:
        self.task = task
        self.thread = thread
        self.builder = builder


class _CallNotes:
    """Writes to the page that survives a crash which chain runs, and what its generated code is."""

    def __init__(self, calls: CurrentCallWriter, words: WorkerWords, builder: TaskBuilder) -> None:
        vertex = builder.vertex
        self._words = words
        self._calls, self._cell = calls, calls.running
        self._attempt = builder.descriptor.attempt_id
        self._operators = tuple((operator.id, operator.name) for operator in vertex.operators)
        self._number = calls.define(
            CurrentUserCall(
                attempt_id=self._attempt,
                operator_id=vertex.operators[0].id,
                operator_name=vertex.name,
            )
        )

    def running(self, now: bool) -> None:
        self._cell[0] = self._number if now else 0

    def compiled(self, code: CompiledCode) -> None:
        self._words.code.compiled(code, [name for _, name in self._operators], self._attempt)
        self._calls.define_chain(
            ChainLines(
                attempt_id=self._attempt,
                file_name=code.file_name,
                operators=self._operators,
                lines=tuple(code.owner_lines),
            )
        )


class JobTasks:
    """All tasks of one worker."""

    def __init__(
        self,
        worker: WorkerSettings,
        settings: Settings,
        network: NetworkEnvironment,
        thread: TaskThread,
        send: Callable[[FromWorker], None],
        output: CapturedOutput,
        calls: CurrentCallWriter | None,
        clock: Clock,
    ) -> None:
        """`calls`: for a worker in its own process; None for one in a thread."""
        self._settings = settings
        self._network = network
        self._thread = thread
        self._send = send
        self._output = output
        self._calls = calls
        self._clock = clock
        self._own_process = calls is not None
        self._words = None if calls is None else WorkerWords(calls, self._operators)
        #: A client reads what user code logs: it says with each job from which levels.
        self._forwards_logs = self._own_process and worker.forward_logs
        self._running: dict[ExecutionAttemptID, _Running] = {}
        self._graphs: dict[JobID, tuple[bytes, JobGraph]] = {}
        self._lock = threading.Lock()
        self.snapshot_thread = SnapshotThread()
        self._storages = JobStorages()
        self.checkpoints = WorkerCheckpoints(self.snapshot_thread, self._storages.open_output, send)
        self.sources = SourceHosting(worker.worker_id, self, self.checkpoints, thread.post, send)
        self._hooks = TaskHooks(
            self,
            self._print,
            self.sources.from_reader,
            self._push_collected,
            self.checkpoints,
            result_key(worker.data_secret),
            note_calls=self._note_calls,
            report_watermark=self._report_watermark,
        )

        if self._words is not None:
            self._words.begin()

    # ------------------------------------------------------------------ deployment

    def submit(self, message: SubmitTasks) -> None:
        """Builds and starts tasks; reports a task that cannot be built as FAILED."""
        deployment = message.deployment
        try:
            graph = self._graph_of(message)
            settings = self._settings.overlay(graph.configuration, "the job")
            self._storages.use(graph.job_id, settings)
        except BaseException as error:  # whatever user modules raise at import
            for descriptor in deployment.tasks:
                self._report(
                    descriptor.attempt_id,
                    ExecutionState.FAILED,
                    failure_cause(error, "the deployment", in_loading=True),
                )
            return
        per_task = settings.get(execution.TASK_THREADS) is execution.TaskThreads.PER_TASK
        if settings.get(testing.FAULT_PLAN) is not None:
            # Imported late: tests of the engine alone have a plan.
            from yarrow.container.worker.fault_plans import install_fault_plan

            install_fault_plan(settings)
        builders = []
        for descriptor in deployment.tasks:
            wake = self._thread.wake
            thread = self._thread
            if per_task or graph.vertex(descriptor.vertex_id).blocking:
                thread = TaskThread()
                wake = thread.wake
            builder = TaskBuilder(
                deployment, graph, descriptor, settings, self._network, self._clock, self._hooks, wake
            )
            builders.append((position_of(graph, builder.vertex), builder, thread))
        for position, builder, thread in sorted(builders, key=lambda entry: entry[0]):
            self._start(position, builder, thread)

    def _graph_of(self, message: SubmitTasks) -> JobGraph:
        """The job's graph. A rescaled job has another graph with the same code."""
        job_id, data = message.deployment.job_id, message.deployment.job_graph
        known = self._graphs.get(job_id)
        if known is not None and known[0] == data:
            return known[1]
        graph = decode_job_graph(data)
        if known is None:
            if self._forwards_logs:
                # First: modules of the program may set levels of their own.
                use_client_levels(graph.client_log_levels)
            install_user_code(graph, message.file_paths, own_main=self._own_process)
        if graph.user_code.files:
            # Imported late: most jobs ship no files.
            from yarrow.container.worker.cached_files import with_cached_files

            graph = with_cached_files(graph, message.file_paths)
        self._graphs[job_id] = (data, graph)
        return graph

    def _start(self, position: int, builder: TaskBuilder, thread: TaskThread) -> None:
        attempt = builder.descriptor.attempt_id
        descriptor = builder.descriptor
        fetched = FetchedState(
            self._storages.reader(builder.graph.job_id, descriptor.restore_directory), builder.local_directory
        )
        if descriptor.restored_checkpoint_id >= 0:
            builder.restored = RestoredState(
                descriptor.restored_checkpoint_id,
                descriptor.restore,
                fetched.read,
                descriptor.restore_trusted,
            )
        try:
            task = builder.build()
        except BaseException as error:  # user code is loaded here
            vertex, subtask = builder.vertex, builder.descriptor.subtask
            where = f"task '{vertex.name}' (subtask {subtask + 1}/{vertex.parallelism})"
            self._network.release(attempt)
            self._report(attempt, ExecutionState.FAILED, failure_cause(error, where, in_loading=True))
            return
        register_task_metrics(task.environment.metrics, task)
        running = _Running(task, thread, builder)
        with self._lock:
            self._running[attempt] = running
        self.checkpoints.task_started(task.checkpoints.name)
        if thread is self._thread:
            thread.add(task, position)
            task.initialize()
        else:
            thread.post(lambda: thread.add(task, position))
            thread.post(task.initialize)
            threading.Thread(
                target=thread.run, name=f"task {task.environment.task_name}", daemon=True
            ).start()
        keeps_state = bool(descriptor.restore) and task.chain.keeps_state_behind_end
        if descriptor.finished_before and not keeps_state and not hosts_enumerator(builder):
            # After the other tasks of the deployment, whose ends of its channels exist then.
            thread.post(task.skip)
        elif descriptor.restored_checkpoint_id >= 0:
            self.snapshot_thread.run_soon(partial(self._fetch, running, fetched))
        else:
            self._open(running, None)

    def _fetch(self, running: _Running, fetched: FetchedState) -> None:
        """Reads the task's restored state while other tasks of the worker run. Snapshot thread."""
        builder, task = running.builder, running.task
        descriptor = builder.descriptor
        try:
            fetched.fetch(descriptor, builder.vertex)
            state = None
            if descriptor.restore_coordinator is not None:
                of = f"the split enumerator of '{builder.vertex.operators[0].name}'"
                state = fetched.reader.read(descriptor.restore_coordinator, of)
        except BaseException as error:  # including an end of the process that a test requested
            task.post(partial(task.fail, error))
            return
        self._thread.post(lambda: self._open(running, state))

    def _open(self, running: _Running, coordinator_state: bytes | None) -> None:
        """Opens the task, since its state is there. Worker's task thread."""
        builder, task = running.builder, running.task
        if self._running.get(builder.descriptor.attempt_id) is not running:
            return  # Cancelled meanwhile.
        # Before the task: if that fails to open, its end stops the enumerator.
        self.sources.task_began(builder, task, coordinator_state)
        begin = task.open
        if builder.descriptor.finished_before:
            begin = partial(task.skip, beside_enumerator=hosts_enumerator(builder))
        if running.thread is self._thread:
            begin()
        else:
            running.thread.post(begin)
        self.sources.deliver_early(builder)

    def _note_calls(self, builder: TaskBuilder) -> _CallNotes | None:
        """What makes the page that survives a crash name this chain while it runs."""
        if self._calls is None or self._words is None:
            return None
        return _CallNotes(self._calls, self._words, builder)

    def _operators(self) -> list[Operator]:
        """The operators of the running tasks. Any thread."""
        with self._lock:
            return [each for entry in self._running.values() for each in entry.task.chain.operators]

    # ------------------------------------------------------------------ checkpoints, events of sources

    def task_of(self, attempt: ExecutionAttemptID) -> StreamTask | None:
        """The live task of an attempt; None if it has ended."""
        running = self._running.get(attempt)
        return None if running is None else running.task

    def bound(self, bounds: WatermarkBounds) -> None:
        """Passes bounds to the readers of aligned sources; those of other workers are not known here."""
        for attempt, bound_ms in bounds.bounds.items():
            running = self._running.get(attempt)
            if running is not None:
                running.task.post(partial(running.task.bound_source, bound_ms))

    def _report_watermark(self, builder: TaskBuilder, progress: ReaderProgress) -> None:
        report = WatermarkReport(
            job_id=builder.graph.job_id,
            attempt_id=builder.descriptor.attempt_id,
            **progress._asdict(),
        )
        self._send(EmitWatermarkReport(report=report))

    def begin_checkpoint(self, trigger: TriggerCheckpoint) -> None:
        """Begins a checkpoint at tasks and coordinators of this worker.

        Declines it for a coordinator that has ended. The JobMaster hears of ended tasks by their last state.
        """
        self.sources.begin_checkpoint(trigger)
        barrier = barrier_of(trigger)
        for attempt in trigger.attempts:
            running = self._running.get(attempt)
            if running is not None:
                running.task.post(partial(running.task.trigger_checkpoint, barrier))
        for attempt, running in list(self._running.items()):
            # State backends prepare their cut while the barriers are on their way.
            if running.builder.graph.job_id == trigger.job_id and attempt not in trigger.attempts:
                running.task.post(partial(running.task.announce_checkpoint, barrier))

    def notify_checkpoint(self, notification: NotifyCheckpoint) -> None:
        """Tells the job's tasks and coordinators whether a checkpoint was completed or aborted."""
        checkpoint_id = notification.checkpoint_id
        if notification.notice is CheckpointNotice.COMPLETED:
            self.checkpoints.completed(notification.job_id, checkpoint_id)
        elif notification.notice is CheckpointNotice.ABORTED:
            self.checkpoints.aborted(notification.job_id, checkpoint_id)
        self.sources.notify(notification)
        for running in list(self._running.values()):
            task = running.task
            if running.builder.graph.job_id != notification.job_id:
                continue
            if notification.notice is CheckpointNotice.COMPLETED:
                task.post(partial(task.checkpoint_completed, checkpoint_id))
            elif notification.notice is CheckpointNotice.ABORTED:
                task.post(partial(task.checkpoint_aborted, checkpoint_id))
                if notification.latest_completed >= 0:
                    task.post(partial(task.checkpoint_completed, notification.latest_completed))

    def end_of_data_reached(self, task: StreamTask) -> None:
        """TaskListener: called on the task's thread."""
        environment = task.environment
        self._send(EndOfDataReached(job_id=JobID(environment.job_id), attempt_id=environment.attempt_id))

    # ------------------------------------------------------------------ cancel, collect, print

    def cancel(self, attempts: tuple[ExecutionAttemptID, ...]) -> None:
        """Cancels tasks; no effect on ended ones."""
        for attempt in attempts:
            running = self._running.get(attempt)
            if running is not None:
                running.task.post(running.task.cancel)

    def cancel_all(self) -> None:
        """Cancels everything at once, because the worker ends."""
        for running in list(self._running.values()):
            if running.thread is self._thread:
                running.task.cancel()
            else:
                running.task.post(running.task.cancel)
        self.sources.stop_all()

    def collect_credit(
        self, attempt: ExecutionAttemptID, collect_id: str, sequence: int, confirmed: Mapping[str, int]
    ) -> None:
        """Takes the client's confirmation of a collect operator's message: confirmed positions by stream."""
        running = self._running.get(attempt)
        operator = None if running is None else running.task.chain.collecting(collect_id)
        if running is not None and operator is not None:
            running.task.post(partial(_grant, running.task, operator, sequence, confirmed))

    def _push_collected(self, builder: TaskBuilder, message: CollectMessage) -> None:
        descriptor = builder.descriptor
        rows = CollectRows(
            job_id=builder.graph.job_id,
            subtask=descriptor.subtask,
            attempt_number=descriptor.attempt_number,
            attempt_id=descriptor.attempt_id,
            **message._asdict(),
        )
        self._send(EmitCollectRows(rows=rows))

    def _print(self, text: str) -> None:
        self._send(OutputLines(stream="stdout", text=text))

    # ------------------------------------------------------------------ state changes, reports

    def task_state_changed(self, task: StreamTask, state: ExecutionState, cause: FailureCause | None) -> None:
        """TaskListener: called on the task's thread."""
        attempt = task.environment.attempt_id
        if not state.is_terminal:
            self._report(attempt, state, cause)
            return
        if self._words is not None:
            self._words.code.forget(attempt)
        self._output.end_lines()
        metrics = task.environment.metrics.values()
        accumulators = accumulated(task.environment)
        with self._lock:
            running = self._running.pop(attempt, None)
        self._network.release(attempt)
        self.checkpoints.task_ended(task.checkpoints.name)
        threads_left: tuple[str, ...] = task.threads_left
        enumerator_lives = False
        finished_readers: tuple[ExecutionAttemptID, ...] | None = None
        if running is not None:
            enumerator = self.sources.task_ended(running.builder, state)
            threads_left += enumerator.threads_left
            enumerator_lives = enumerator.lives
            finished_readers = enumerator.finished_readers
            if running.thread is not self._thread:
                running.thread.stop()
        self._send(
            TaskStateChanged(
                update=TaskExecutionStateUpdate(
                    attempt_id=attempt,
                    state=state,
                    timestamp_ms=self._clock.epoch_ms(),
                    cause=cause,
                    accumulators=accumulators,
                    metrics=metrics,
                    late_records=task.environment.metrics.late_records(),
                    threads_left=threads_left,
                    enumerator_lives=enumerator_lives,
                    finished_readers=finished_readers,
                    latest_checkpoint=task.checkpoints.latest,
                )
            )
        )

    def _report(self, attempt: ExecutionAttemptID, state: ExecutionState, cause: FailureCause | None) -> None:
        update = TaskExecutionStateUpdate(
            attempt_id=attempt, state=state, timestamp_ms=self._clock.epoch_ms(), cause=cause
        )
        self._send(TaskStateChanged(update=update))

    def gates(self) -> list[InputGate]:
        """The inputs of the running tasks. Any thread."""
        with self._lock:
            return [entry.task.gate for entry in self._running.values()]

    def event_times(self, job_id: JobID) -> tuple[TaskTimeReport, ...]:
        """Event time in the running tasks of a job. Any thread."""
        # Imported late: most jobs are never asked.
        from yarrow.container.worker.task_event_time import event_time_of

        with self._lock:
            running = list(self._running.values())
        return tuple(
            event_time_of(entry.task)
            for entry in running
            if entry.builder.graph.job_id == job_id and entry.task.running_since is not None
        )

    def reports(self) -> tuple[tuple[TaskMetrics, ...], dict[ExecutionAttemptID, dict[str, Any]]]:
        """Metrics and accumulators of the running tasks."""
        with self._lock:
            running = list(self._running.items())
        metrics = tuple(
            TaskMetrics(
                attempt_id=attempt,
                values=entry.task.environment.metrics.values(),
                late_records=entry.task.environment.metrics.late_records(),
            )
            for attempt, entry in running
        )
        accumulators = {}
        for attempt, entry in running:
            values = accumulated(entry.task.environment)
            if values:
                accumulators[attempt] = values
        return metrics, accumulators


def barrier_of(trigger: TriggerCheckpoint) -> CheckpointBarrier:
    """The barrier that the tasks of a trigger send."""
    options = trigger.options
    alignment = BarrierAlignment.UNALIGNED if options.unaligned else BarrierAlignment.ALIGNED
    if not options.exactly_once:
        alignment = BarrierAlignment.AT_LEAST_ONCE
    return CheckpointBarrier(trigger.checkpoint_id, trigger.timestamp_ms, alignment, options)


def _grant(
    task: StreamTask, operator: CollectingOperator, sequence: int, confirmed: Mapping[str, int]
) -> None:
    operator.on_credit(sequence, confirmed)
    task.wake()
