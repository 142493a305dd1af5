"""The claim of a sink on its prefix: when it begins, how it looks at others, and that its thread ends in order.

The requests are kept in a list here. What brokers make of them is shown by tests/kafka/test_prefix_owners.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from yarrow.common.serialization import SchemaUnavailableError
from yarrow.datastream.connectors.base import DeliveryGuarantee
from yarrow.datastream.connectors.kafka import KafkaRecordSerializationSchema, KafkaSink, ProducerRecord
from yarrow.datastream.connectors.kafka.cluster.client import ClusterClient
from yarrow.datastream.connectors.kafka.cluster.end_transaction import TransactionClient, TransactionFacts
from yarrow.datastream.connectors.kafka.cluster.kafka_errors import (
    KafkaPrefixInUseError,
    KafkaTransactionError,
)
from yarrow.datastream.connectors.kafka.writing import prefix_owner
from yarrow.datastream.connectors.kafka.writing.kafka_writer import TransactionalKafkaWriter
from yarrow.datastream.connectors.kafka.writing.prefix_claims import Holder, Mark, owner_name, owners_prefix
from yarrow.datastream.connectors.kafka.writing.prefix_owner import PrefixOwner
from yarrow.datastream.connectors.kafka.writing.record_serialization import Encode
from yarrow.datastream.connectors.kafka.writing.sink_settings import KafkaSinkSettings

OWN = "5" * 32


class RegistryGone(KafkaRecordSerializationSchema[Any]):
    """Its schema registry does not answer."""

    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        raise AssertionError("no writer was made")

    def encoder(self) -> Encode:
        raise SchemaUnavailableError("gone")


class NoRows(KafkaRecordSerializationSchema[Any]):
    def serialize(self, element: Any, timestamp: int | None) -> ProducerRecord | None:
        return None


def sink_settings(serializer: KafkaRecordSerializationSchema[Any] | None = None) -> KafkaSinkSettings:
    builder = KafkaSink.builder().set_bootstrap_servers("localhost:1")
    builder.set_record_serializer(serializer or RegistryGone())
    return builder.set_transactional_id_prefix("p").build().settings


@pytest.mark.parametrize("leaves_out_rows", [False, True])
def test_a_writer_that_cannot_be_made_keeps_no_prefix(
    monkeypatch: pytest.MonkeyPatch, leaves_out_rows: bool
) -> None:
    owners: list[str] = []
    monkeypatch.setattr(PrefixOwner, "claim", lambda owner, client: owners.append("claimed"))
    monkeypatch.setattr(PrefixOwner, "close", lambda owner: owners.remove("claimed"))
    monkeypatch.setattr(ClusterClient, "require_topic", lambda cluster, topic: None)
    monkeypatch.setattr(ClusterClient, "broker_setting", lambda cluster, name: None)
    monkeypatch.setattr(TransactionClient, "listed", lambda client, prefix, *states: [])
    sink = KafkaSink[Any](sink_settings())
    assert sink.create_committer() is not None
    context: Any = SimpleNamespace(
        leaves_out_rows=leaves_out_rows,
        delivery_guarantee=DeliveryGuarantee.EXACTLY_ONCE,
        subtask_index=0,
        parallelism=1,
        job_id=OWN,
        sink_id="7" * 32,
        attempt_number=0,
        restored_checkpoint_id=None,
        latest_savepoint_id=None,
        configuration={},
    )
    with pytest.raises(SchemaUnavailableError):
        sink.create_writer(context)
    assert owners == []


class SlowNames(TransactionClient):
    """Names of jobs, asked for by a clock that moves with each question alone."""

    def __init__(self, signs: dict[str, Mark], seconds: float) -> None:
        self.now = 0.0
        self.signs = signs
        self.claims: list[float] = []
        self._seconds = seconds
        self.largest = 0

    def register(self, name: str, timeout_ms: int) -> None:
        assert name == owner_name("p", Holder(OWN))
        if timeout_ms == Mark.CLAIMS:
            self.claims.append(self.now)

    def find(self, name: str) -> TransactionFacts | None:
        return self.find_all([name]).get(name)

    def listed(self, prefix: str, *states: str) -> list[str]:
        assert (prefix, states) == (owners_prefix("p"), ("Empty",))
        return sorted(self.signs)

    def find_all(self, names: Sequence[str]) -> dict[str, TransactionFacts]:
        self.largest = max(self.largest, len(names))
        self.now += self._seconds
        # Owners beat every 2 s.
        epochs = {
            name: int(self.now / 2) if self.signs[name] is Mark.OWNS else 0
            for name in names
            if name in self.signs
        }
        return {name: TransactionFacts("Empty", 7, epoch, self.signs[name]) for name, epoch in epochs.items()}

    def wait(self, seconds: float) -> bool:
        self.now += seconds
        return False


def test_an_owner_is_found_among_thousands_of_former_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    signs = {owner_name("p", Holder(f"{number:032x}")): Mark.RELEASED for number in range(5000)}
    living = "e" * 32
    names = SlowNames({**signs, owner_name("p", Holder(living)): Mark.OWNS}, 3.0)
    owner = PrefixOwner(sink_settings(), Holder(OWN), 1)
    monkeypatch.setattr(prefix_owner, "perf_counter", lambda: names.now)
    monkeypatch.setattr(owner, "_ended", names)
    with pytest.raises(
        KafkaPrefixInUseError,
        match=f"If job {living} has lost its master, wait until its TaskExecutors have ended",
    ):
        owner.claim(names)
    assert names.largest == 1000
    # Others that claim at the same time see that this job lives, also during its first look.
    assert all(later - earlier <= 4 for earlier, later in pairwise(names.claims))
    assert len(names.claims) > 5


class Beats(TransactionClient):
    """The connection of beats, which fails in different ways."""

    made: Beats
    #: A beat came behind the failed ones.
    goes_on = threading.Event()

    def __init__(self, settings: Any, properties: Any, timeout_seconds: float) -> None:
        Beats.made = self
        self.marks: list[int] = []
        self.closed = False

    def register(self, name: str, timeout_ms: int) -> None:
        self.marks.append(timeout_ms)
        if len(self.marks) > 2:
            self.goes_on.set()
            return
        raise [RuntimeError("of the library"), KafkaTransactionError("no answer")][len(self.marks) - 1]

    def close(self) -> None:
        self.closed = True


def test_beats_go_on_behind_any_error_and_end_with_the_connection(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(prefix_owner, "TransactionClient", Beats)
    monkeypatch.setattr(prefix_owner, "BEAT_SECONDS", 0.001)
    owner = PrefixOwner(sink_settings(), Holder(OWN), 1)
    owner._holds = True
    owner._thread.start()
    assert Beats.goes_on.wait(60)
    owner.close()
    owner._thread.join(60)
    assert Beats.made.closed and Beats.made.marks[-1] == Mark.RELEASED
    told = [entry.getMessage() for entry in caplog.records if "is not kept" in entry.getMessage()]
    assert told == ["The prefix 'p' is not kept for this job meanwhile: of the library"]


class Told(TransactionClient):
    """Keeps what brokers are told, by name, and tells the last mark of each name."""

    def __init__(self) -> None:
        self.marks: dict[str, list[int]] = {}
        self.asked = threading.Event()

    def find(self, name: str) -> TransactionFacts | None:
        self.asked.set()
        known = self.marks.get(name)
        return None if known is None else TransactionFacts("Empty", 7, 0, known[-1])

    def find_all(self, names: Sequence[str]) -> dict[str, TransactionFacts]:
        return {name: facts for name in names if (facts := self.find(name)) is not None}

    def listed(self, prefix: str, *states: str) -> list[str]:
        return sorted(name for name in self.marks if name.startswith(prefix))

    def register(self, name: str, timeout_ms: int) -> None:
        self.marks.setdefault(name, []).append(timeout_ms)

    def close(self) -> None:
        """Nothing is open."""


def name_of(subtask: int) -> str:
    return owner_name("p", Holder(OWN, subtask))


def until(client: Told, name: str, mark: Mark) -> None:
    """Wait until the brokers were told so."""
    deadline = time.monotonic() + 60
    while client.marks.get(name, [])[-1:] != [mark]:
        assert time.monotonic() < deadline, f"told: {client.marks}"
        time.sleep(0.01)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Told:
    client = Told()
    monkeypatch.setattr(prefix_owner, "TransactionClient", lambda *settings: client)
    monkeypatch.setattr(prefix_owner, "_LOOK_SECONDS", 0.001)
    return client


def test_each_subtask_keeps_the_prefix_until_it_ends_itself(brokers: Told) -> None:
    owners = [PrefixOwner(sink_settings(), Holder(OWN, subtask), 2) for subtask in range(2)]
    # The second subtask waits for the first one.
    owners[1].claim(brokers)
    assert brokers.asked.wait(60)
    assert brokers.marks == {}
    owners[0].claim(brokers)
    assert brokers.marks[name_of(0)] == [Mark.CLAIMS, Mark.OWNS]
    until(brokers, name_of(1), Mark.OWNS)
    owners[0].close()
    until(brokers, name_of(0), Mark.RELEASED)
    assert brokers.marks[name_of(1)] == [Mark.OWNS]
    owners[1].close()
    until(brokers, name_of(1), Mark.RELEASED)


def test_a_subtask_that_ends_before_the_claim_tells_nothing(brokers: Told) -> None:
    owner = PrefixOwner(sink_settings(), Holder(OWN, 1), 2)
    owner.claim(brokers)
    assert brokers.asked.wait(60)
    owner.close()
    owner._thread.join(60)
    assert not owner._thread.is_alive() and brokers.marks == {}


def test_subtasks_that_a_smaller_sink_lacks_hold_nothing_any_more(brokers: Told) -> None:
    """They were killed, so nobody else tells of their end."""
    other = owner_name("p", Holder("e" * 32, 5))
    for name in (*map(name_of, range(4)), other):
        brokers.register(name, Mark.OWNS)
    owner = PrefixOwner(sink_settings(), Holder(OWN), 2)
    owner.claim(brokers)
    assert [brokers.marks[name_of(subtask)][-1] for subtask in range(4)] == [1002, 1002, 1003, 1003]
    assert brokers.marks[other] == [Mark.OWNS]
    owner.close()


@pytest.mark.parametrize("input_ends", [True, False])
def test_a_writer_keeps_the_prefix_until_it_is_closed(brokers: Told, input_ends: bool) -> None:
    """A cancelled or failed subtask ends as one whose input has ended."""
    brokers.marks[name_of(0)] = [Mark.RELEASED]
    names: Any = SimpleNamespace()
    writer = TransactionalKafkaWriter(sink_settings(NoRows()), names, brokers, 60_000)
    writer.claim_prefix(PrefixOwner(sink_settings(), Holder(OWN), 1))
    writer.flush(input_ends)
    assert brokers.marks[name_of(0)] == [Mark.RELEASED, Mark.OWNS]
    writer.close()
    until(brokers, name_of(0), Mark.RELEASED)
