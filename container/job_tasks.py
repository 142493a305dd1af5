"""The tasks of a worker: deployment, cancellation, operator events, collect credit, state reports.

Owner: the worker's task thread; `reports` may be called from the report thread. Tasks of blocking vertices run on
threads of their own, everything else on the worker's one.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from yarrow.container.current_call import ChainLines, CurrentCallWriter
from yarrow.container.job_code import install_user_code
from yarrow.container.network.network_environment import NetworkEnvironment
from yarrow.container.operators.base import CollectMessage
from yarrow.container.operators.sinks import CollectingOperator
from yarrow.container.output_capture import CapturedOutput
from yarrow.container.task.code_writer import CompiledCode
from yarrow.container.task.failure import failure_cause
from yarrow.container.task.source_coordinator import SourceCoordinator
from yarrow.container.task.stream_task import StreamTask
from yarrow.container.task.task_builder import TaskBuilder, TaskHooks, position_of
from yarrow.container.task.task_metrics import register_task_metrics
from yarrow.container.task.task_thread import TaskThread
from yarrow.container.worker_protocol import (
    CurrentUserCall,
    EmitCollectRows,
    EmitOperatorEvent,
    OutputLines,
    SubmitTasks,
    TaskStateChanged,
    WorkerSettings,
)
from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID, OperatorID
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.graph.operator_spec import SourceOperator
from yarrow.runtime.graph.states import ExecutionState
from yarrow.runtime.rpc.messages import CollectRows, FailureCause, OperatorEvent, TaskMetrics

_log = logging.getLogger(__name__)

COORDINATOR = -1


class _Running:
    """A task with the thread that runs it and what it was built from."""

    def __init__(self, task: StreamTask, thread: TaskThread, builder: TaskBuilder) -> None:
        self.task = task
        self.thread = thread
        self.builder = builder


class JobTasks:
    """All tasks of one worker."""

    def __init__(
        self,
        worker: WorkerSettings,
        settings: Settings,
        network: NetworkEnvironment,
        thread: TaskThread,
        send: Callable[[msgspec.Struct], None],
        output: CapturedOutput,
        calls: CurrentCallWriter | None,
        clock: Clock,
        *,
        own_process: bool,
    ) -> None:
        self._worker = worker
        self._settings = settings
        self._network = network
        self._thread = thread
        self._send = send
        self._output = output
        self._calls = calls
        self._clock = clock
        self._own_process = own_process
        self._running: dict[ExecutionAttemptID, _Running] = {}
        self._graphs: dict[JobID, JobGraph] = {}
        self._coordinators: dict[tuple[JobID, OperatorID], SourceCoordinator] = {}
        self._early_events: dict[tuple[JobID, OperatorID, int], list[OperatorEvent]] = defaultdict(list)
        self._lock = threading.Lock()
        self._hooks = TaskHooks(self, self._print, self._send_event, self._push_collected)

    # ------------------------------------------------------------------ deployment

    def submit(self, message: SubmitTasks) -> None:
        """Builds and starts tasks; one that cannot be built is reported FAILED."""
        deployment = message.deployment
        try:
            graph = self._graph_of(message)
        except BaseException as error:  # whatever user modules raise at import
            for descriptor in deployment.tasks:
                self._report(descriptor.attempt_id, ExecutionState.FAILED, failure_cause(error, "the deployment"))
            return
        settings = self._settings.overlay(graph.configuration, "the job")
        per_task = settings.get(execution.TASK_THREADS) is execution.TaskThreads.PER_TASK
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
        job_id = message.deployment.job_id
        graph = self._graphs.get(job_id)
        if graph is None:
            graph = decode_job_graph(message.deployment.job_graph)
            install_user_code(graph, message.file_paths, own_main=self._own_process)
            self._graphs[job_id] = graph
        return graph

    def _start(self, position: int, builder: TaskBuilder, thread: TaskThread) -> None:
        attempt = builder.descriptor.attempt_id
        try:
            task = builder.build()
        except BaseException as error:  # user code is loaded here
            vertex, subtask = builder.vertex, builder.descriptor.subtask
            where = f"task '{vertex.name}' (subtask {subtask + 1}/{vertex.parallelism})"
            self._network.release(attempt)
            self._report(attempt, ExecutionState.FAILED, failure_cause(error, where))
            return
        register_task_metrics(task.environment.metrics, task)
        running = _Running(task, thread, builder)
        with self._lock:
            self._running[attempt] = running
        self._note_calls(running)
        # Before the task: should that fail to open, its end finds the coordinator and stops it.
        self._start_coordinator(builder, task)
        if thread is self._thread:
            thread.add(task, position)
            task.start()
        else:
            thread.post(lambda: thread.add(task, position))
            thread.post(task.start)
            threading.Thread(target=thread.run, name=f"task {task.environment.task_name}", daemon=True).start()
        self._deliver_early(builder)

    def _note_calls(self, running: _Running) -> None:
        """Has the page that survives a crash name this chain while it runs."""
        if self._calls is None:
            return
        vertex, calls = running.builder.vertex, self._calls
        number = calls.define(
            CurrentUserCall(
                attempt_id=running.builder.descriptor.attempt_id,
                operator_id=vertex.operators[0].id,
                operator_name=vertex.name,
            )
        )
        cell = calls.running

        def note(running_now: bool) -> None:
            cell[0] = number if running_now else 0

        running.task.on_slice = note
        operators = tuple((operator.id, operator.name) for operator in vertex.operators)
        attempt = running.builder.descriptor.attempt_id

        def tell_lines(code: CompiledCode) -> None:
            calls.define_chain(
                ChainLines(
                    attempt_id=attempt,
                    file_name=code.file_name,
                    operators=operators,
                    lines=tuple(code.owner_lines),
                )
            )

        running.task.chain.on_compiled = tell_lines

    # ------------------------------------------------------------------ sources

    def _start_coordinator(self, builder: TaskBuilder, task: StreamTask) -> None:
        head = builder.vertex.operators[0]
        if builder.descriptor.subtask != 0 or not isinstance(head.spec, SourceOperator):
            return

        def send(target: int, payload: bytes) -> None:
            self._route(builder, head.id, target, COORDINATOR, payload)

        def fail(error: BaseException) -> None:
            task.post(lambda: task.fail(error))

        coordinator = SourceCoordinator(head.name, head.spec.source, builder.vertex.parallelism, send, fail)
        self._coordinators[(builder.graph.job_id, head.id)] = coordinator
        coordinator.start()

    def _send_event(self, builder: TaskBuilder, operator_id: str, target: int, source: int, payload: bytes) -> None:
        self._route(builder, OperatorID(operator_id), target, source, payload)

    def _route(self, builder: TaskBuilder, operator: OperatorID, target: int, source: int, payload: bytes) -> None:
        """To this worker's own end directly, else by way of the JobMaster."""
        event = OperatorEvent(
            job_id=builder.graph.job_id,
            vertex_id=builder.vertex.id,
            operator_id=operator,
            target_subtask=target,
            source_subtask=source,
            payload=payload,
        )
        host = builder.address_of(builder.vertex.id, max(target, 0))
        if host.worker_id == self._worker.worker_id:
            self._thread.post(lambda: self.deliver(event))
        else:
            self._send(EmitOperatorEvent(event=event))

    def deliver(self, event: OperatorEvent) -> None:
        """An event for a coordinator or reader of this worker; held until its task is there."""
        key = (event.job_id, event.operator_id)
        if event.target_subtask == COORDINATOR:
            coordinator = self._coordinators.get(key)
            if coordinator is not None:
                coordinator.handle(event.source_subtask, event.payload)
                return
        else:
            running = self._reader(event)
            if running is not None:
                source = running.task.chain.source
                assert source is not None
                task = running.task
                task.post(lambda: self._hand_to_reader(task, event.payload))
                return
        self._early_events[(*key, event.target_subtask)].append(event)

    @staticmethod
    def _hand_to_reader(task: StreamTask, payload: bytes) -> None:
        source = task.chain.source
        if source is not None:
            with task.chain.attributed(0):
                source.handle_event(payload)
            task.wake()

    def _reader(self, event: OperatorEvent) -> _Running | None:
        for running in self._running.values():
            builder = running.builder
            if builder.vertex.id == event.vertex_id and builder.descriptor.subtask == event.target_subtask:
                return running
        return None

    def _deliver_early(self, builder: TaskBuilder) -> None:
        head = builder.vertex.operators[0]
        for target in (COORDINATOR, builder.descriptor.subtask):
            for event in self._early_events.pop((builder.graph.job_id, head.id, target), ()):
                self.deliver(event)

    # ------------------------------------------------------------------ cancel, collect, print

    def cancel(self, attempts: tuple[ExecutionAttemptID, ...]) -> None:
        """Cancels tasks; ones that have ended are left alone."""
        for attempt in attempts:
            running = self._running.get(attempt)
            if running is not None:
                running.task.post(running.task.cancel)

    def cancel_all(self) -> None:
        """Cancels everything at once: the worker ends."""
        for running in list(self._running.values()):
            if running.thread is self._thread:
                running.task.cancel()
            else:
                running.task.post(running.task.cancel)
        for coordinator in self._coordinators.values():
            coordinator.stop()

    def collect_credit(self, collect_id: str, subtask: int, sequence: int) -> None:
        """The client's side has taken a message of a collect operator."""
        for running in self._running.values():
            operator = running.task.chain.collecting(collect_id)
            if operator is not None and running.builder.descriptor.subtask == subtask:
                running.task.post(partial(_grant, running.task, operator, sequence))
                return

    def _push_collected(self, builder: TaskBuilder, message: CollectMessage) -> None:
        rows = CollectRows(
            job_id=builder.graph.job_id,
            collect_id=message.collect_id,
            subtask=builder.descriptor.subtask,
            sequence=message.sequence,
            payload=message.payload,
            row_count=message.row_count,
            last=message.last,
            continued=message.continued,
        )
        self._send(EmitCollectRows(rows=rows))

    def _print(self, text: str) -> None:
        self._send(OutputLines(stream="stdout", text=text))

    # ------------------------------------------------------------------ state changes, reports

    def task_state_changed(self, task: StreamTask, state: ExecutionState, cause: FailureCause | None) -> None:
        """TaskListener: on the task's thread."""
        attempt = task.environment.attempt_id
        if not state.is_terminal:
            self._report(attempt, state, cause)
            return
        self._output.end_lines()
        metrics = task.environment.metrics.values()
        accumulators = accumulated(task)
        with self._lock:
            running = self._running.pop(attempt, None)
            left = len(self._running)
        self._network.release(attempt)
        if running is not None:
            self._stop_coordinator(running)
            if running.thread is not self._thread:
                running.thread.stop()
        self._send(
            TaskStateChanged(
                attempt_id=attempt,
                state=state,
                timestamp_ms=self._clock.epoch_ms(),
                cause=cause,
                accumulators=accumulators,
                metrics=metrics,
                tasks_left=left,
            )
        )

    def _stop_coordinator(self, running: _Running) -> None:
        # It lives with subtask 0, and subtasks end in any order.
        builder = running.builder
        if all(other.builder.vertex.id != builder.vertex.id for other in list(self._running.values())):
            coordinator = self._coordinators.pop((builder.graph.job_id, builder.vertex.operators[0].id), None)
            if coordinator is not None:
                coordinator.stop()

    def _report(self, attempt: ExecutionAttemptID, state: ExecutionState, cause: FailureCause | None) -> None:
        self._send(
            TaskStateChanged(
                attempt_id=attempt,
                state=state,
                timestamp_ms=self._clock.epoch_ms(),
                cause=cause,
                tasks_left=len(self._running),
            )
        )

    def reports(self) -> tuple[tuple[TaskMetrics, ...], dict[ExecutionAttemptID, dict[str, Any]]]:
        """Metrics and accumulators of the running tasks."""
        with self._lock:
            running = list(self._running.items())
        metrics = tuple(
            TaskMetrics(attempt_id=attempt, values=entry.task.environment.metrics.values()) for attempt, entry
            in running )
        accumulators = {}
        for attempt, entry in running:
            values = accumulated(entry.task)
            if values:
                accumulators[attempt] = values
        return metrics, accumulators


def _grant(task: StreamTask, operator: CollectingOperator, sequence: int) -> None:
    operator.on_credit(sequence)
    task.wake()


def accumulated(task: StreamTask) -> dict[str, Any]:
    """The accumulators of a task; one of the user's that raises is left out and logged."""
    values: dict[str, Any] = {}
    for name, accumulator in list(task.environment.accumulators.items()):
        try:
            values[name] = accumulator.get_local_value()
        except Exception:
            _log.exception("accumulator '%s' of task '%s' raised", name, task.environment.task_name)
    return plain_values(values)


def plain_values(values: dict[str, Any]) -> dict[str, Any]:
    """Accumulator results as msgpack can carry them; what it cannot becomes its text."""
    plain: dict[str, Any] = {}
    for name, value in values.items():
        try:
            msgspec.msgpack.encode(value)
            plain[name] = value
        except (TypeError, OverflowError, msgspec.MsgspecError):
            plain[name] = str(value)
    return plain
