"""Whatever is sent, held back, cut, given up, completed and restored: each split is with one reader, or unassigned."""

from __future__ import annotations

import pickle
from collections import Counter, deque
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from yarrow.container.sources.coordinator_state import CoordinatorState, dump_state, load_state
from yarrow.container.sources.source_events import (
    UNNUMBERED,
    AssignmentLog,
    LoggedEvent,
    ReaderInbox,
    encode_to_reader,
    untaken_splits,
)
from yarrow.runtime.snapshot.errors import SnapshotError
from yarrow.runtime.snapshot.value_serializers import value_serializer

READERS = 2


class Reader:
    """One attempt of a reader with what is on its way to it, and what it has said."""

    def __init__(self, restored: int = -1, taken: int = -1, splits: tuple[int, ...] = ()) -> None:
        self.inbox = ReaderInbox(restored, taken)
        self.splits = list(splits)
        self.wire: deque[bytes] = deque()
        self.said: deque[tuple[str, int, int]] = deque()

    def take(self, messages: list[Any]) -> None:
        for message in messages:
            self.splits += message[1]


class Exactness(RuleBasedStateMachine):
    """One coordinator, two readers, checkpoints that overlap, failures of one reader or of all."""

    @initialize()
    def begin(self) -> None:
        self.log = AssignmentLog()
        self.readers = [Reader() for _ in range(READERS)]
        self.unassigned = list(range(100))
        self.checkpoint = 0
        self.completed = -1
        #: Snapshots of the coordinator and of readers, by checkpoint.
        self.coordinator: dict[int, bytes] = {}
        self.cuts: dict[int, dict[int, tuple[int, tuple[int, ...]]]] = {}

    # ---- the course of things

    @precondition(lambda self: self.unassigned)
    @rule(subtask=st.integers(0, READERS - 1), count=st.integers(1, 3))
    def assign(self, subtask: int, count: int) -> None:
        for _ in range(min(count, len(self.unassigned))):
            event = self.log.append(subtask, ("splits", [self.unassigned.pop(0)]))
            self._send(subtask, event)

    def _send(self, subtask: int, event: LoggedEvent) -> None:
        self.readers[subtask].wire.append(encode_to_reader(*event))

    @rule(subtask=st.integers(0, READERS - 1), count=st.integers(1, 5))
    def arrive(self, subtask: int, count: int) -> None:
        reader = self.readers[subtask]
        for _ in range(min(count, len(reader.wire))):
            payload = reader.wire.popleft()
            reader.take(reader.inbox.receive(payload))
            if count % 2:
                # The same once more does no harm.
                reader.take(reader.inbox.receive(payload))

    @rule(subtask=st.integers(0, READERS - 1))
    def listen(self, subtask: int) -> None:
        reader = self.readers[subtask]
        if reader.said:
            kind, number, taken = reader.said.popleft()
            self.log.confirmed(subtask, taken)
            if kind == "cut":
                self.log.cut(subtask, number, taken)

    @rule(subtask=st.integers(0, READERS - 1))
    def request(self, subtask: int) -> None:
        reader = self.readers[subtask]
        reader.said.append(("request", -1, reader.inbox.taken))

    # ---- checkpoints

    @rule()
    def snapshot(self) -> None:
        self.checkpoint += 1
        state = CoordinatorState(READERS, list(self.unassigned), self.log.snapshot(self.checkpoint))
        self.coordinator[self.checkpoint] = dump_state(state, "source")
        self.cuts[self.checkpoint] = {}

    @precondition(lambda self: self.cuts)
    @rule(subtask=st.integers(0, READERS - 1), data=st.data())
    def cut(self, subtask: int, data: st.DataObject) -> None:
        open_ids = [
            n for n, cuts in self.cuts.items() if subtask not in cuts and n > max(self._cut_ids(subtask))
        ]
        if not open_ids:
            return
        self._cut(subtask, data.draw(st.sampled_from(open_ids)))

    def _cut(self, subtask: int, number: int) -> None:
        reader = self.readers[subtask]
        self.cuts[number][subtask] = (reader.inbox.taken, tuple(reader.splits))
        reader.said.append(("cut", number, reader.inbox.taken))
        reader.take(reader.inbox.cut(number))

    def _cut_ids(self, subtask: int) -> list[int]:
        return [-1] + [n for n, cuts in self.cuts.items() if subtask in cuts]

    @precondition(lambda self: any(n > self.completed for n in self.cuts))
    @rule()
    def cut_the_rest_and_complete(self) -> None:
        number = min(n for n in self.cuts if n > self.completed)
        for subtask in range(READERS):
            if subtask not in self.cuts[number]:
                if number < max(self._cut_ids(subtask)):
                    return
                self._cut(subtask, number)
        self.complete()

    @precondition(lambda self: self.cuts)
    @rule()
    def complete(self) -> None:
        whole = [n for n, cuts in self.cuts.items() if len(cuts) == READERS and n > self.completed]
        if whole:
            self.completed = whole[-1]
            self.log.completed(self.completed)
            for number in [n for n in self.cuts if n < self.completed]:
                del self.cuts[number]

    @precondition(lambda self: self.cuts)
    @rule(data=st.data(), first=st.booleans())
    def abort(self, data: st.DataObject, first: bool) -> None:
        under_way = [n for n in self.cuts if n > self.completed]
        if under_way:
            self._abort(data.draw(st.sampled_from(under_way)), first)

    def _abort(self, number: int, reader_first: bool) -> None:
        del self.cuts[number]
        if not reader_first:
            self.log.aborted(number)
        for reader in self.readers:
            reader.take(reader.inbox.give_up(number))
        if reader_first:
            self.log.aborted(number)

    # ---- failures

    @rule(subtask=st.integers(0, READERS - 1))
    def fail_one(self, subtask: int) -> None:
        """Region failover: checkpoints under way are given up, the reader goes back, the coordinator with it."""
        for number in [n for n in self.cuts if n > self.completed]:
            self._abort(number, False)
        taken, splits = self.cuts[self.completed][subtask] if self.completed >= 0 else (-1, ())
        self.unassigned = self.log.reset(subtask, self.completed) + self.unassigned
        self.readers[subtask] = Reader(self.completed, taken, splits)
        for event in self.log.registered(subtask, taken):
            self._send(subtask, event)

    @rule()
    def fail_all(self) -> None:
        self.log = AssignmentLog(self.completed)
        if self.completed < 0:
            self.readers = [Reader() for _ in range(READERS)]
            self.unassigned = list(range(100))
        else:
            state = load_state(self.coordinator[self.completed], "source")
            self.unassigned = list(state.enumerator)
            for subtask, next_number, events in state.readers:
                self.log.restore(subtask, next_number, events)
            for subtask, (taken, splits) in self.cuts[self.completed].items():
                self.readers[subtask] = Reader(self.completed, taken, splits)
                for event in self.log.registered(subtask, taken):
                    self._send(subtask, event)
        self.cuts = {n: cuts for n, cuts in self.cuts.items() if n == self.completed}

    # ---- what must hold

    @invariant()
    def every_split_is_somewhere_once(self) -> None:
        if not hasattr(self, "log"):
            return
        held: Counter[int] = Counter(self.unassigned)
        for reader in self.readers:
            held.update(reader.splits)
            for number, _, message in [*reader.inbox._held, *map(pickle.loads, reader.wire)]:
                if number > reader.inbox.taken and number != UNNUMBERED:
                    waiting = {n for n, _, _ in reader.inbox._held}
                    if number in waiting and (number, _, message) not in reader.inbox._held:
                        continue
                    held.update(pickle.loads(message)[1])
        assert held == Counter(range(100))

    @invariant()
    def nothing_is_held_back_for_nothing(self) -> None:
        if not hasattr(self, "log"):
            return
        for reader in self.readers:
            if reader.inbox.held:
                assert any(number > self.completed for number in self.cuts)


TestExactness = pytest.mark.slow(Exactness.TestCase)
TestExactness.settings = settings(max_examples=100, stateful_step_count=50, deadline=None)


def test_state_of_another_version_is_refused() -> None:
    data = value_serializer(None, "x", "source").dump_value([99, 1, None, []])
    with pytest.raises(SnapshotError, match=r"'source'.*version 1"):
        load_state(data, "source")


def payloads(log: AssignmentLog, subtask: int, *splits: int) -> list[bytes]:
    return [encode_to_reader(*log.append(subtask, ("splits", [split]))) for split in splits]


def taken_by(inbox: ReaderInbox, sent: list[bytes]) -> list[int]:
    return [split for payload in sent for message in inbox.receive(payload) for split in message[1]]


def test_an_event_sent_behind_a_snapshot_waits_for_the_readers_cut() -> None:
    log, inbox = AssignmentLog(), ReaderInbox(-1, -1)
    assert taken_by(inbox, payloads(log, 0, 1)) == [1]
    log.snapshot(5)
    assert taken_by(inbox, payloads(log, 0, 2, 3)) == []
    assert inbox.taken == 0
    assert [message[1] for message in inbox.cut(5)] == [[2], [3]]
    log.snapshot(6)
    held = payloads(log, 0, 4)
    assert taken_by(inbox, held) == []
    assert [message[1] for message in inbox.give_up(6)] == [[4]]
    # What comes late for a checkpoint that was given up is taken at once.
    assert taken_by(inbox, payloads(log, 0, 5)) == [5]


def test_a_snapshot_holds_what_a_reader_may_not_have_taken() -> None:
    log = AssignmentLog()
    payloads(log, 0, 1, 2)
    payloads(log, 1, 3)
    log.confirmed(0, 0)
    assert log.snapshot(1) == [(0, 2, [(1, ("splits", [2]))]), (1, 1, [(0, ("splits", [3]))])]


def test_a_reset_gives_back_what_was_assigned_since_and_keeps_what_was_before() -> None:
    log = AssignmentLog()
    payloads(log, 0, 1)
    log.snapshot(1)
    payloads(log, 0, 2)
    log.snapshot(2)
    payloads(log, 0, 3)
    assert log.reset(0, 1) == [2, 3]
    # The reader had not taken 1 at its cut: it is sent again, and not held back for the checkpoint given up.
    (event,) = log.registered(0, -1)
    assert event.number == 0
    assert event.epoch <= 1
    assert log.reset(0, -1) == [1]


def test_a_completed_checkpoint_lets_go_of_what_its_readers_hold() -> None:
    log = AssignmentLog()
    payloads(log, 0, 1, 2)
    log.snapshot(1)
    log.cut(0, 1, 0)
    log.completed(1)
    assert log.reset(0, 1) == []
    assert [event.number for event in log.registered(0, -1)] == [1]


def test_splits_that_no_reader_has_taken_are_left_over() -> None:
    sent: list[tuple[int, int, list[tuple[int, tuple[Any, ...]]]]] = [
        (0, 0, [(1, ("splits", ["a"])), (2, ("splits", ["b", "c"])), (3, ("no_more",))]),
        (1, 0, [(1, ("splits", ["d"]))]),
    ]
    assert untaken_splits(sent, {0: 1, 1: 0}) == ["b", "c", "d"], (
        "what was taken last is in the reader's state"
    )
    assert untaken_splits(sent, {0: 3}) == [], "a reader that had ended has read everything"
