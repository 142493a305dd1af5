"""Drives sources and sink writers without an engine: requests answered in order, time and ids by hand."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from yarrow.datastream.connectors.base import (
    DeliveryGuarantee,
    NothingAvailable,
    Source,
    SourceReader,
    SourceRecords,
    SourceSplit,
)
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.snapshot.value_serializers import value_serializer

JOB = "0" * 31 + "1"
SINK = "0" * 31 + "2"


@dataclass
class SinkContext:
    """The context of a sink writer; its timers fire when the test advances the clock."""

    subtask_index: int = 0
    parallelism: int = 1
    job_id: str = JOB
    sink_id: str = SINK
    attempt_number: int = 0
    restored_checkpoint_id: int | None = None
    latest_savepoint_id: int | None = None
    delivery_guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    leaves_out_rows: bool = False
    configuration: Mapping[str, str] = field(default_factory=dict)
    clock: ManualClock = field(default_factory=lambda: ManualClock(1_700_000_000_000))
    timers: list[tuple[int, Callable[[], None]]] = field(default_factory=list)

    def current_processing_time(self) -> int:
        return self.clock.epoch_ms()

    def register_timer(self, timestamp: int, action: Callable[[], None]) -> None:
        self.timers.append((timestamp, action))

    def advance(self, seconds: float) -> None:
        """Moves the clock and fires what is due."""
        self.clock.advance(seconds)
        due = [timer for timer in self.timers if timer[0] <= self.clock.epoch_ms()]
        for timer in due:
            self.timers.remove(timer)
            timer[1]()


@dataclass
class ReaderContext:
    """What a reader asks is kept until the harness answers."""

    subtask_index: int
    parallelism: int
    configuration: Mapping[str, str] = field(default_factory=dict)
    asked: int = 0
    events: list[Any] = field(default_factory=list)

    def request_split(self) -> None:
        self.asked += 1

    def send_event_to_enumerator(self, event: Any) -> None:
        self.events.append(pickle.loads(pickle.dumps(event)))

    def wake_up(self) -> None:
        return None


class SourceHarness:
    """A source at some parallelism; rows of all readers are collected in `rows`."""

    def __init__(self, source: Source[Any, Any], parallelism: int = 1, state: Any = None) -> None:
        self.source = source
        self.parallelism = parallelism
        self.registered_readers: dict[int, str] = {}
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.rows: list[Any] = []
        self.side: list[tuple[str, Any]] = []
        self.num_errors = 0
        self.waits: list[float | None] = []
        self.assigned: list[SourceSplit] = []
        enumerator_state, reader_states = state if state is not None else (None, [])
        self.enumerator = source.create_enumerator(self, enumerator_state)
        self.contexts = [ReaderContext(index, parallelism) for index in range(parallelism)]
        self.readers: list[SourceReader[Any, Any]] = [
            source.create_reader(context) for context in self.contexts
        ]
        self.enumerator.start()
        splits = [split for splits in reader_states for split in splits]
        for index, reader in enumerate(self.readers):
            if mine := splits[index::parallelism]:
                reader.add_splits(mine)
            reader.start()
            # A reader has its restored splits before anything of the enumerator reaches it.
            self.registered_readers[index] = "localhost"
            self.enumerator.add_reader(index)
        self.answer()

    # What an enumerator asks of the engine.
    def assign_split(self, split: SourceSplit, subtask: int) -> None:
        self.assigned.append(split)
        self.readers[subtask].add_splits([split])

    def signal_no_more_splits(self, subtask: int) -> None:
        self.readers[subtask].notify_no_more_splits()

    def send_event_to_reader(self, subtask: int, event: Any) -> None:
        self.readers[subtask].handle_source_event(pickle.loads(pickle.dumps(event)))

    def call_later(self, seconds: float, action: Callable[[], None]) -> None:
        self.later.append((seconds, action))

    def answer(self) -> None:
        """Hands open requests and events to the enumerator."""
        while any(context.asked or context.events for context in self.contexts):
            for index, context in enumerate(self.contexts):
                while context.asked:
                    context.asked -= 1
                    self.enumerator.handle_split_request(index, "localhost")
                while context.events:
                    self.enumerator.handle_source_event(index, context.events.pop(0))

    def poll(self, reader: int = 0, max_rows: int = 100) -> SourceRecords | NothingAvailable | None:
        """One poll; rows are kept, requests answered."""
        found = self.readers[reader].poll(max_rows)
        self.answer()
        if isinstance(found, SourceRecords):
            assert len(found.rows) <= max_rows
            self.rows += (
                found.rows.to_pylist() if isinstance(found.rows, pa.RecordBatch) else list(found.rows)
            )
            self.side += found.side or []
            self.num_errors += found.num_errors
        elif isinstance(found, NothingAvailable):
            self.waits.append(found.wait_seconds)
        return found

    def run(self, max_rows: int = 100, polls: int | None = None) -> list[Any]:
        """Polls readers in turn until all have ended, or so many times."""
        running = list(range(self.parallelism))
        while running and polls != 0:
            for reader in list(running):
                if self.poll(reader, max_rows) is None:
                    running.remove(reader)
            polls = None if polls is None else polls - 1
        return self.rows

    def snapshot(self) -> Any:
        """The state of enumerator and readers."""
        return self.enumerator.snapshot_state(1), [reader.snapshot_state(1) for reader in self.readers]

    def close(self) -> None:
        """Closes all."""
        for reader in self.readers:
            reader.close()
        self.enumerator.close()


def as_stored(state: Any, allow_pickle: bool = False) -> Any:
    """The state behind a checkpoint: its bytes are read again, and a pickle in them must be allowed."""
    serializer = value_serializer(None, "source-splits", "source", allow_pickle=allow_pickle)
    return serializer.load_value(serializer.dump_value(state))


def run(source: Source[Any, Any], parallelism: int = 1, max_rows: int = 100) -> list[Any]:
    """All rows of a bounded source."""
    harness = SourceHarness(source, parallelism)
    try:
        return harness.run(max_rows)
    finally:
        harness.close()


def run_with_restores(
    source: Source[Any, Any], parallelism: int, max_rows: int, polls: int, allow_pickle: bool = False
) -> list[Any]:
    """All rows when every `polls` polls the source is restored from a snapshot, each time by new readers."""
    rows: list[Any] = []
    state = None
    while True:
        harness = SourceHarness(source, parallelism, state)
        rows += harness.run(max_rows, polls)
        state = as_stored(harness.snapshot(), allow_pickle)
        ended = all(harness.readers[index].poll(1) is None for index in range(parallelism))
        harness.close()
        if ended:
            return rows
