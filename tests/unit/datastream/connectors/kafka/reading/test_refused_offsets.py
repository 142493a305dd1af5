"""Offsets that a broker refuses: those that are there are asked for again, the others are lost or fail the job."""

from __future__ import annotations

import pytest

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaOffsetOutOfRangeError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition
from yarrow.datastream.connectors.kafka.reading.refused_offsets import RefusedOffsets

PLACE = KafkaTopicPartition("t", 0)


class Refusals:
    """Refusals of a partition that has the offsets 6 to 9."""

    def __init__(self, reset: str = "error") -> None:
        self.now = 0.0
        self._refused = RefusedOffsets(reset, 10, lambda: self.now)

    def next(self, asked: int) -> int:
        return self._refused.next_offset(PLACE, asked, 6, 10, "out of range")


@pytest.mark.parametrize("reset", ["error", "earliest", "latest"])
@pytest.mark.parametrize("asked", [6, 8, 10])
def test_an_offset_that_is_there_is_asked_for_again(asked: int, reset: str) -> None:
    assert Refusals(reset).next(asked) == asked


@pytest.mark.parametrize("reset", ["error", "earliest", "latest"])
def test_a_refusal_without_an_offset_is_one_of_the_beginning(reset: str) -> None:
    """-1 would be the end for the client: all records would be lost."""
    assert Refusals(reset).next(-1) == 6


@pytest.mark.parametrize("asked", [5, 11])
def test_an_offset_that_is_not_there_fails_or_is_lost_as_the_program_says(asked: int) -> None:
    assert Refusals("earliest").next(asked) == 6
    assert Refusals("latest").next(asked) == 10
    with pytest.raises(
        KafkaOffsetOutOfRangeError, match=f"t-0 has no offset {asked},.* it has 6 to 10"
    ) as failed:
        Refusals().next(asked)
    assert failed.value.is_final, "each restart would ask for it again"


@pytest.mark.parametrize("reset", ["error", "earliest"])
def test_an_offset_that_stays_refused_fails(reset: str) -> None:
    refusals = Refusals(reset)
    refusals.next(8)
    refusals.now = 9.9
    refusals.next(8)
    refusals.now = 10.0
    with pytest.raises(KafkaOffsetOutOfRangeError, match="a broker has refused offset 8 for") as failed:
        refusals.next(8)
    assert not failed.value.is_final, "nothing is lost, and the broker may have it again"


def test_the_time_of_a_refusal_begins_anew_behind_records() -> None:
    refusals = Refusals()
    refusals.next(7)
    refusals.now = 9.0
    refusals.next(8)
    refusals.now = 18.0
    assert refusals.next(8) == 8
