"""Events between a split enumerator and its readers, each taken exactly once whatever checkpoint is restored.

An event to a reader has a number, and the id of the last checkpoint for which the enumerator was snapshotted.
A reader that has not cut for that checkpoint holds the event back. The enumerator's snapshot does not contain
the event, so the reader's must not either. The reader's state holds the number of its last event. The
enumerator's snapshot holds the events that a reader may not have taken. A restore sends those again that come
after the reader's last one.

Owner: `ReaderInbox` the reader's task thread, `AssignmentLog` the enumerator's thread. Must not know
transport.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: To the coordinator: ("register", host, progress of all restored readers, restored checkpoint id), ("request",),
#: ("event", object), ("finished",), ("cut", checkpoint id). To a reader: ("splits", [...]), ("no_more",),
#: ("event", object), and not numbered ("complete",) and ("released", checkpoint id).
Message = tuple[Any, ...]
#: Number of a message outside of the sequence: it is taken at once and never sent again.
UNNUMBERED = -1
#: (subtask, parallelism then, number of the last event, whether it knows that no more splits come)
Progress = tuple[int, int, int, bool]


def encode_to_coordinator(taken: int, number: int, message: Message) -> bytes:
    """Encodes a reader's message, with the number of its last event and the message's own number within the attempt."""
    return pickle.dumps((taken, number, message), 5)


def decode_to_coordinator(payload: bytes) -> tuple[int, int, Message]:
    """The number of the reader's last event, the number of the message, and the message."""
    decoded: tuple[int, int, Message] = pickle.loads(payload)
    return decoded


def encode_to_reader(number: int, epoch: int, message: bytes) -> bytes:
    """Encodes an event whose message is already pickled."""
    return pickle.dumps((number, epoch, message), 5)


class ReaderInbox:
    """The events that a reader has taken, and those that it holds back."""

    def __init__(self, restored_checkpoint_id: int, taken: int) -> None:
        #: Number of the last taken event.
        self.taken = taken
        self._cut = restored_checkpoint_id
        self._given_up: set[int] = set()
        self._held: deque[tuple[int, int, bytes]] = deque()

    def receive(self, payload: bytes) -> list[Message]:
        """Takes an event; returns the messages to process now, in order."""
        number, epoch, message = pickle.loads(payload)
        if number == UNNUMBERED:
            decoded: Message = pickle.loads(message)
            if decoded[0] == "released":
                return self.give_up(decoded[1])
            return [decoded]
        if number > self.taken and (not self._held or number > self._held[-1][0]):
            self._held.append((number, epoch, message))
        return self._take()

    def cut(self, checkpoint_id: int) -> list[Message]:
        """Notes the reader's cut; returns the messages that were held back for it."""
        self._cut = max(self._cut, checkpoint_id)
        self._given_up = {number for number in self._given_up if number > self._cut}
        return self._take()

    def give_up(self, checkpoint_id: int) -> list[Message]:
        """Notes an aborted checkpoint; returns the messages that were held back for it."""
        if checkpoint_id > self._cut:
            self._given_up.add(checkpoint_id)
        return self._take()

    @property
    def held(self) -> int:
        """Number of events that are held back."""
        return len(self._held)

    def _take(self) -> list[Message]:
        taken = []
        while self._held and (self._held[0][1] <= self._cut or self._held[0][1] in self._given_up):
            self.taken, _, message = self._held.popleft()
            taken.append(pickle.loads(message))
        return taken


class LoggedEvent(NamedTuple):
    """An event that a restored reader might not have taken."""

    number: int
    #: Id of the last checkpoint for which the enumerator had been snapshotted.
    epoch: int
    #: Pickled when it was sent, so that later changes of the enumerator do not reach it.
    message: bytes


@dataclass(slots=True)
class _Reader:
    """The known progress of one subtask's reader."""

    next_number: int = 0
    #: Number of the last event that its present attempt has certainly taken.
    confirmed: int = -1
    #: By checkpoint id: the number of the last event at its cut.
    cuts: dict[int, int] = field(default_factory=dict)
    events: deque[LoggedEvent] = field(default_factory=deque)


class AssignmentLog:
    """Events by reader, while a restored reader might need them or their splits might have to go back."""

    def __init__(self, restored_checkpoint_id: int = -1) -> None:
        self._readers: dict[int, _Reader] = {}
        self._snapshots = [restored_checkpoint_id]

    @property
    def epoch(self) -> int:
        """Id of the latest checkpoint with a snapshot that was not aborted."""
        return self._snapshots[-1]

    def _reader(self, subtask: int) -> _Reader:
        return self._readers.setdefault(subtask, _Reader())

    def append(self, subtask: int, message: Message) -> LoggedEvent:
        """Adds a new event for that reader."""
        reader = self._reader(subtask)
        event = LoggedEvent(reader.next_number, self.epoch, pickle.dumps(message, 5))
        reader.next_number += 1
        reader.events.append(event)
        return event

    def confirmed(self, subtask: int, number: int) -> None:
        """Notes that the reader has taken all events up to that number."""
        reader = self._reader(subtask)
        reader.confirmed = max(reader.confirmed, number)

    def cut(self, subtask: int, checkpoint_id: int, number: int) -> None:
        """Notes that the reader's state for that checkpoint contains all events up to that number."""
        self._reader(subtask).cuts[checkpoint_id] = number

    def snapshot(self, checkpoint_id: int) -> list[tuple[int, int, list[tuple[int, Message]]]]:
        """For each reader: subtask, next number, and the events that its state for that checkpoint may lack."""
        if checkpoint_id > self.epoch:
            self._snapshots.append(checkpoint_id)
        return [
            (
                subtask,
                reader.next_number,
                [
                    (event.number, pickle.loads(event.message))
                    for event in reader.events
                    if event.number > reader.confirmed
                ],
            )
            for subtask, reader in sorted(self._readers.items())
        ]

    def restore(self, subtask: int, next_number: int, events: Sequence[tuple[int, Message]]) -> None:
        """Restores a reader's part of a `snapshot`; its events belong to the time before every checkpoint."""
        reader = self._reader(subtask)
        reader.next_number = next_number
        reader.events.extend(
            LoggedEvent(number, UNNUMBERED, pickle.dumps(message, 5)) for number, message in events
        )

    def registered(self, subtask: int, taken: int) -> list[LoggedEvent]:
        """Takes a new attempt of the reader with a state up to number `taken`; returns the events that it lacks."""
        reader = self._reader(subtask)
        reader.confirmed = taken
        reader.next_number = max(reader.next_number, taken + 1)
        return [
            event._replace(epoch=self._standing(event.epoch))
            for event in reader.events
            if event.number > taken
        ]

    def _standing(self, epoch: int) -> int:
        """The latest snapshot up to `epoch` that was not aborted since."""
        return max((number for number in self._snapshots if number <= epoch), default=UNNUMBERED)

    def completed(self, checkpoint_id: int) -> None:
        """Notes that no restore will go back before that checkpoint."""
        self._snapshots = [
            number for number in self._snapshots if number >= checkpoint_id
        ] or self._snapshots[-1:]
        for reader in self._readers.values():
            reached = [number for number in reader.cuts if number <= checkpoint_id]
            if not reached:
                continue
            covered = reader.cuts[max(reached)]
            while reader.events and reader.events[0].number <= covered:
                reader.events.popleft()
            for number in reached:
                del reader.cuts[number]

    def aborted(self, checkpoint_id: int) -> None:
        """Notes that the checkpoint will never be restored."""
        if len(self._snapshots) > 1 and checkpoint_id in self._snapshots:
            self._snapshots.remove(checkpoint_id)

    def reset(self, subtask: int, checkpoint_id: int) -> list[Any]:
        """Takes a reader back to that checkpoint; returns the splits that it got since.

        Events from before the enumerator's snapshot for the checkpoint stay. They are sent again if the
        restored reader lacks them. Checkpoints that were pending have been aborted with the reader.
        """
        self._snapshots = [n for n in self._snapshots if n <= checkpoint_id] or [checkpoint_id]
        reader = self._reader(subtask)
        reader.cuts = {number: taken for number, taken in reader.cuts.items() if number <= checkpoint_id}
        kept, back = deque[LoggedEvent](), []
        for event in reader.events:
            if event.epoch < checkpoint_id:
                kept.append(event)
                continue
            message = pickle.loads(event.message)
            if message[0] == "splits":
                back += message[1]
        reader.events = kept
        return back


def untaken_splits(
    old: Iterable[tuple[int, int, list[tuple[int, Message]]]], taken: Mapping[int, int]
) -> list[Any]:
    """The splits in a snapshot of another parallelism that no reader's state contains.

    `taken` names each reader that had not ended before the snapshot; an ended one has taken and read
    everything.
    """
    return [
        split
        for subtask, _, events in old
        for number, message in events
        if subtask in taken and number > taken[subtask] and message[0] == "splits"
        for split in message[1]
    ]
