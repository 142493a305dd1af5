"""SourceCoordinator: runs the SplitEnumerator of a source, in the worker of subtask 0 and on its own thread.

Owner: its thread; methods that are marked so may be called from any thread. So user code of the enumerator
never runs in the control plane, which only routes its events. Calls into the enumerator come one at a time.
sources.source_events delivers events exactly once.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from yarrow.container.codegen.user_functions import load_function
from yarrow.container.protocol.errors import NotReadyForCheckpointError
from yarrow.container.protocol.failure import OperatorFailure
from yarrow.container.sources.coordinator_state import CoordinatorState, dump_state, load_state
from yarrow.container.sources.source_events import (
    UNNUMBERED,
    AssignmentLog,
    LoggedEvent,
    Message,
    Progress,
    decode_to_coordinator,
    encode_to_reader,
    untaken_splits,
)
from yarrow.datastream.connectors.base import Source, SourceSplit, SplitEnumerator
from yarrow.runtime.common.clock import perf_counter
from yarrow.runtime.common.ids import ExecutionAttemptID, attempt_place
from yarrow.runtime.data.checkpoint_options import CheckpointOptions


class CoordinatorHost(Protocol):
    """The worker's services for a coordinator; each method may be called from its thread."""

    def send(self, subtask: int, attempt: ExecutionAttemptID, payload: bytes) -> None:
        """Sends an event to the reader of that subtask, for that attempt only."""
        ...

    def fail(self, error: BaseException) -> None:
        """Fails the task of subtask 0, because user code of the enumerator has failed."""
        ...

    def deliver(self, checkpoint_id: int, options: CheckpointOptions, state: bytes) -> None:
        """Takes a snapshot to write and acknowledge."""
        ...

    def decline(self, checkpoint_id: int, error: BaseException) -> None:
        """Declines a checkpoint, for which there is no snapshot."""
        ...


class RestoredCoordinator(msgspec.Struct, frozen=True):
    """The state with which a coordinator begins; `state` None = its source begins anew."""

    checkpoint_id: int = -1
    state: bytes | None = None
    #: True if pickled values in it may be read.
    trusted: bool = True


class SourceCoordinator:
    """One enumerator with its thread; it is the enumerator's context, too."""

    def __init__(
        self,
        name: str,
        source: bytes,
        parallelism: int,
        host: CoordinatorHost,
        restored: RestoredCoordinator | None = None,
    ) -> None:
        self._name = name
        self._source_blob = source
        self._parallelism = parallelism
        self._host = host
        self._restored = restored or RestoredCoordinator()
        self._actions: queue.SimpleQueue[Callable[[SplitEnumerator[SourceSplit]], None] | None] = (
            queue.SimpleQueue()
        )
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        #: Host name of each reader that has started.
        self._readers: dict[int, str] = {}
        self._attempts: dict[int, ExecutionAttemptID] = {}
        #: The latest known attempt of each reader, and the number of its last message.
        self._heard: dict[int, tuple[ExecutionAttemptID, int]] = {}
        #: Attempts of the readers that have finished.
        self._finished: dict[int, ExecutionAttemptID] = {}
        self._log = AssignmentLog(self._restored.checkpoint_id)
        #: Restored at another parallelism: events of former readers, until the present readers' progress is
        #: known.
        self._rescaled: CoordinatorState | None = None
        self._latest_snapshot = self._restored.checkpoint_id
        self._enumerator: SplitEnumerator[SourceSplit] | None = None
        self._thread = threading.Thread(target=self._run, name=f"split enumerator of {name}", daemon=True)

    # ------------------------------------------------------------- any thread

    def start(self) -> None:
        """Starts the thread, which creates and starts the enumerator."""
        self._thread.start()

    def handle(self, subtask: int, attempt: ExecutionAttemptID, payload: bytes) -> None:
        """Takes an event of a reader."""
        self._actions.put(lambda enumerator: self._handle(enumerator, subtask, attempt, payload))

    def checkpoint(self, checkpoint_id: int, options: CheckpointOptions) -> None:
        """Takes a snapshot; the host gets it, or the reason why there is none."""
        self._actions.put(lambda enumerator: self._checkpoint(enumerator, checkpoint_id, options))

    def completed(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint is complete."""

        def act(enumerator: SplitEnumerator[SourceSplit]) -> None:
            self._log.completed(checkpoint_id)
            enumerator.notify_checkpoint_complete(checkpoint_id)

        self._actions.put(act)

    def aborted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint was aborted: readers need not hold back events for it."""

        def act(enumerator: SplitEnumerator[SourceSplit]) -> None:
            self._log.aborted(checkpoint_id)
            for subtask in self._attempts:
                self._send_unnumbered(subtask, ("released", checkpoint_id))

        self._actions.put(act)

    def reset(self, subtask: int, ended: ExecutionAttemptID, checkpoint_id: int) -> None:
        """Takes note that a new attempt of a reader starts from that checkpoint, after the attempt `ended`.

        Splits that were assigned since then go back, unless the next attempt has registered meanwhile, which
        does the same.
        """
        self._actions.put(lambda enumerator: self._reset(enumerator, subtask, ended, checkpoint_id))

    def stop(self) -> None:
        """Closes the enumerator and ends the thread."""
        self._actions.put(None)

    def stop_and_join(self, timeout: float = 0.2) -> tuple[str, ...]:
        """Stops it and waits for its thread; returns the name of a thread that user code keeps alive."""
        self.stop()
        self._thread.join(timeout)
        return (self._thread.name,) if self._thread.is_alive() else ()

    @property
    def finished_readers(self) -> tuple[ExecutionAttemptID, ...]:
        """Attempts of the readers that have finished and not gone back since; call it after the thread has ended."""
        return tuple(self._finished.values())

    # ------------------------------------------------------------- SplitEnumeratorContext

    @property
    def parallelism(self) -> int:
        """The parallelism of the source."""
        return self._parallelism

    @property
    def registered_readers(self) -> Mapping[int, str]:
        """The host of each registered subtask."""
        return self._readers

    def assign_split(self, split: SourceSplit, subtask: int) -> None:
        """Assigns a split to a reader."""
        self._send(subtask, ("splits", [split]))

    def signal_no_more_splits(self, subtask: int) -> None:
        """Tells a reader that it will get no more splits."""
        self._send(subtask, ("no_more",))

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        """Sends a picklable event."""
        self._send(subtask, ("event", event))

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` on this thread after the delay in seconds."""
        heapq.heappush(self._timers, (perf_counter() + seconds, next(self._order), action))

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            source: Source[Any, SourceSplit] = load_function(self._source_blob, self._name)
            self._enumerator = source.create_enumerator(self, self._restore())
            self._enumerator.start()
            while self._step(self._enumerator):
                pass
        except BaseException as error:  # user code may raise anything; the task of subtask 0 fails with it
            self._host.fail(OperatorFailure(self._name, "", error))
        finally:
            if self._enumerator is not None:
                try:
                    self._enumerator.close()
                except BaseException as error:
                    self._host.fail(OperatorFailure(self._name, "", error))

    def _restore(self) -> Any:
        if self._restored.state is None:
            return None
        state = load_state(self._restored.state, self._name, trusted=self._restored.trusted)
        if state.parallelism == self._parallelism:
            for subtask, next_number, events in state.readers:
                self._log.restore(subtask, next_number, events)
        else:
            self._rescaled = state
        return state.enumerator

    def _step(self, enumerator: SplitEnumerator[SourceSplit]) -> bool:
        timeout = max(0.0, self._timers[0][0] - perf_counter()) if self._timers else None
        try:
            action = self._actions.get(timeout=timeout)
        except queue.Empty:
            while self._timers and self._timers[0][0] <= perf_counter():
                heapq.heappop(self._timers)[2]()
            return True
        if action is None:
            return False
        action(enumerator)
        return True

    def _handle(
        self,
        enumerator: SplitEnumerator[SourceSplit],
        subtask: int,
        attempt: ExecutionAttemptID,
        payload: bytes,
    ) -> None:
        taken, number, message = decode_to_coordinator(payload)
        if (heard := self._heard.get(subtask)) is not None and heard[0] == attempt and number <= heard[1]:
            return  # It has come before.
        if heard is None or not _is_later(heard[0], attempt):
            self._heard[subtask] = (attempt, number)
        if message[0] == "register":
            self._register(enumerator, subtask, attempt, taken, message)
            return
        if message[0] == "finished":
            self._reader_finished(subtask, attempt)
            return
        if self._attempts.get(subtask) != attempt:
            return  # Of an attempt that was reset since.
        self._log.confirmed(subtask, taken)
        if message[0] == "request":
            enumerator.handle_split_request(subtask, self._readers.get(subtask))
        elif message[0] == "event":
            enumerator.handle_source_event(subtask, message[1])
        elif message[0] == "cut":
            self._log.cut(subtask, message[1], taken)

    def _register(
        self,
        enumerator: SplitEnumerator[SourceSplit],
        subtask: int,
        attempt: ExecutionAttemptID,
        taken: int,
        message: Message,
    ) -> None:
        if self._rescaled is not None:
            progress: list[Progress] = message[2]
            splits = untaken_splits(self._rescaled.readers, {entry[0]: entry[2] for entry in progress})
            self._rescaled = None
            if splits:
                enumerator.add_splits_back(splits, subtask)
        former = self._attempts.get(subtask)
        if former is not None and _is_later(former, attempt):
            return  # Of an attempt that was replaced since.
        if former is not None and _is_later(attempt, former):
            # The message that the reader goes back has not come yet.
            self._go_back(enumerator, subtask, message[3])
        self._readers[subtask] = message[1]
        self._attempts[subtask] = attempt
        for event in self._log.registered(subtask, taken):
            self._transmit(subtask, event)
        enumerator.add_reader(subtask)

    def _reader_finished(self, subtask: int, attempt: ExecutionAttemptID) -> None:
        known = self._attempts.get(subtask)
        if known is not None and _is_later(known, attempt):
            return
        # One that had ended before the restored checkpoint does not register.
        self._attempts[subtask] = attempt
        self._finished[subtask] = attempt
        if len(self._finished) == self._parallelism:
            self._send_unnumbered(0, ("complete",))

    def _checkpoint(
        self, enumerator: SplitEnumerator[SourceSplit], checkpoint_id: int, options: CheckpointOptions
    ) -> None:
        if checkpoint_id <= self._latest_snapshot:
            return
        try:
            if self._rescaled is not None:
                raise NotReadyForCheckpointError("no reader has registered since the source was rescaled")
            state = CoordinatorState(self._parallelism, enumerator.snapshot_state(checkpoint_id), [])
            self._latest_snapshot = checkpoint_id
            state.readers += self._log.snapshot(checkpoint_id)
            data = dump_state(state, self._name)
        except Exception as error:  # user code; the checkpoint is aborted, the source goes on
            self._host.decline(checkpoint_id, OperatorFailure(self._name, "", error))
            return
        self._host.deliver(checkpoint_id, options, data)

    def _reset(
        self,
        enumerator: SplitEnumerator[SourceSplit],
        subtask: int,
        ended: ExecutionAttemptID,
        checkpoint_id: int,
    ) -> None:
        known = self._attempts.get(subtask)
        if known is None or not _is_later(known, ended):
            self._go_back(enumerator, subtask, checkpoint_id)

    def _go_back(self, enumerator: SplitEnumerator[SourceSplit], subtask: int, checkpoint_id: int) -> None:
        splits = self._log.reset(subtask, checkpoint_id)
        self._finished.pop(subtask, None)
        self._readers.pop(subtask, None)
        self._attempts.pop(subtask, None)
        if splits:
            enumerator.add_splits_back(splits, subtask)

    def _send(self, subtask: int, message: Message) -> None:
        if not 0 <= subtask < self._parallelism:
            raise ValueError(
                f"the enumerator of '{self._name}' sent an event to reader {subtask}; the source has"
                f" {self._parallelism} readers, counted from 0"
            )
        event = self._log.append(subtask, message)
        # A reader that has not registered gets it when it does.
        if subtask in self._attempts:
            self._transmit(subtask, event)

    def _transmit(self, subtask: int, event: LoggedEvent) -> None:
        payload = encode_to_reader(event.number, event.epoch, event.message)
        self._host.send(subtask, self._attempts[subtask], payload)

    def _send_unnumbered(self, subtask: int, message: Message) -> None:
        attempt = self._attempts.get(subtask)
        if attempt is not None:
            payload = encode_to_reader(UNNUMBERED, UNNUMBERED, pickle.dumps(message, 5))
            self._host.send(subtask, attempt, payload)


def _is_later(attempt: ExecutionAttemptID, other: ExecutionAttemptID) -> bool:
    """Compares two attempts of one subtask."""
    return attempt_place(attempt)[1] > attempt_place(other)[1]
