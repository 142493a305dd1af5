"""RefusedOffsets: what becomes of a partition whose next offset the broker does not have.

Owner: the fetch thread; without I/O. A broker may say so for a moment although it has the offset, for example right
behind the making of a topic. The client library would then go to another offset at once, so it does not decide. Must
not know the client library.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaOffsetOutOfRangeError
from yarrow.datastream.connectors.kafka.cluster.topic_partition import KafkaTopicPartition

#: Values of auto.offset.reset that accept a loss.
_TO_BEGINNING: Final = "earliest"
_TO_END: Final = "latest"
_LOG = logging.getLogger(__name__)


class RefusedOffsets:
    """The offsets that brokers have refused although they are there."""

    def __init__(self, reset: str, seconds: float, clock: Callable[[], float]) -> None:
        """`reset` is the program's auto.offset.reset; `seconds` is how long an offset may be refused that is there."""
        self._reset = reset
        self._seconds = seconds
        self._clock = clock
        #: The offset, and seconds of the clock since which it is refused.
        self._since: dict[KafkaTopicPartition, tuple[int, float]] = {}

    def next_offset(self, place: KafkaTopicPartition, asked: int, first: int, end: int, reason: str) -> int:
        """The offset to read next, where a broker has refused offset `asked`; a negative one is the beginning.

        The partition has offsets from `first` to before `end`. Raises KafkaOffsetOutOfRangeError if the offset is not
        there and the program does not accept the loss. It raises it, too, if an offset that is there stays refused.
        """
        if asked < 0:
            asked = first
        if first <= asked <= end:
            if self._is_refused_too_long(place, asked):
                error = KafkaOffsetOutOfRangeError(
                    f"{place}: a broker has refused offset {asked} for {self._seconds:g} s, although the partition has"
                    f" {first} to {end} ({reason}). Look into the brokers' logs"
                )
                # Nothing is lost: the broker may answer the next attempt.
                error.is_final = False
                raise error
            _LOG.warning("Kafka: a broker refused offset %d of %s, and is asked again", asked, place)
            return asked
        if self._reset not in {_TO_BEGINNING, _TO_END}:
            raise _lost(place, asked, first, end, reason)
        offset = first if self._reset == _TO_BEGINNING else end
        _LOG.warning(
            "Kafka: %s has no offset %d. It goes on at %d, since auto.offset.reset=%s accepts the loss",
            place,
            asked,
            offset,
            self._reset,
        )
        return offset

    def _is_refused_too_long(self, place: KafkaTopicPartition, asked: int) -> bool:
        now = self._clock()
        offset, since = self._since.get(place, (asked, now))
        if offset != asked:
            # Records have come since the last refusal.
            since = now
        self._since[place] = asked, since
        return now - since >= self._seconds


def _lost(
    place: KafkaTopicPartition, asked: int, first: int, end: int, reason: str
) -> KafkaOffsetOutOfRangeError:
    return KafkaOffsetOutOfRangeError(
        f"{place} has no offset {asked}, which is to be read next: it has {first} to {end} ({reason}). Retention has"
        " removed records, or the topic was made anew. Restore from another checkpoint, or accept the loss: set"
        " auto.offset.reset to earliest or latest"
    )
