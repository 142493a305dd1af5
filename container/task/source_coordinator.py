"""Runs the SplitEnumerator of a source, in the worker of the source's subtask 0 and on a thread of its own.

Owner: its thread; `handle` may be called from any thread. User code of the enumerator thereby never runs in the control
plane, which only routes its events. Calls into the enumerator come one at a time.
"""

from __future__ import annotations

import heapq
import itertools
import pickle
import queue
import threading
from collections.abc import Callable, Mapping
from typing import Any

from yarrow.container.operators.user_functions import load_function
from yarrow.container.task.failure import OperatorFailure
from yarrow.datastream.connectors.base import Source, SourceSplit, SplitEnumerator
from yarrow.runtime.common.clock import perf_counter

#: (target subtask, payload)
SendEvent = Callable[[int, bytes], None]


class SourceCoordinator:
    """One enumerator with its thread; it is the enumerator's context, too."""

    def __init__(
        self, name: str, source: bytes, parallelism: int, send: SendEvent, fail: Callable[[BaseException], None]
    ) -> None:
        self._name = name
        self._source_blob = source
        self._parallelism = parallelism
        self._send = send
        self._fail = fail
        self._events: queue.SimpleQueue[tuple[int, bytes] | None] = queue.SimpleQueue()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._readers: dict[int, str] = {}
        self._finished: set[int] = set()
        self._enumerator: SplitEnumerator[SourceSplit] | None = None
        self._thread = threading.Thread(target=self._run, name=f"split enumerator of {name}", daemon=True)

    def start(self) -> None:
        """Starts the thread, which creates and starts the enumerator."""
        self._thread.start()

    def handle(self, subtask: int, payload: bytes) -> None:
        """An event from a reader."""
        self._events.put((subtask, payload))

    def stop(self) -> None:
        """Closes the enumerator and ends the thread."""
        self._events.put(None)

    # ------------------------------------------------------------- SplitEnumeratorContext

    @property
    def parallelism(self) -> int:
        """Of the source."""
        return self._parallelism

    @property
    def registered_readers(self) -> Mapping[int, str]:
        """Subtask -> host."""
        return self._readers

    def assign_split(self, split: SourceSplit, subtask: int) -> None:
        """Hands a split to a reader."""
        self._send(subtask, pickle.dumps(("splits", [split]), 5))

    def signal_no_more_splits(self, subtask: int) -> None:
        """A reader will get none any more."""
        self._send(subtask, pickle.dumps(("no_more",), 5))

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        """A picklable event."""
        self._send(subtask, pickle.dumps(("event", event), 5))

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        """Runs `action` on this thread after the delay."""
        heapq.heappush(self._timers, (perf_counter() + seconds, next(self._order), action))

    # ------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            source: Source[Any, SourceSplit] = load_function(self._source_blob, self._name)
            self._enumerator = source.create_enumerator(self)
            self._enumerator.start()
            while self._step(self._enumerator):
                pass
        except BaseException as error:  # user code may raise anything; the task of subtask 0 fails with it
            self._fail(OperatorFailure(self._name, "", error))
        finally:
            if self._enumerator is not None:
                try:
                    self._enumerator.close()
                except BaseException as error:
                    self._fail(OperatorFailure(self._name, "", error))

    def _step(self, enumerator: SplitEnumerator[SourceSplit]) -> bool:
        timeout = max(0.0, self._timers[0][0] - perf_counter()) if self._timers else None
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            while self._timers and self._timers[0][0] <= perf_counter():
                heapq.heappop(self._timers)[2]()
            return True
        if event is None:
            return False
        subtask, payload = event
        message = pickle.loads(payload)
        if message[0] == "register":
            self._readers[subtask] = message[1]
            enumerator.add_reader(subtask)
        elif message[0] == "request":
            enumerator.handle_split_request(subtask, self._readers.get(subtask))
        elif message[0] == "event":
            enumerator.handle_source_event(subtask, message[1])
        elif message[0] == "finished":
            self._finished.add(subtask)
            if len(self._finished) == self._parallelism:
                self._send(0, pickle.dumps(("complete",), 5))
        return True
