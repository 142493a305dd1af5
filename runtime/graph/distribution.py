"""Which subtasks a pointwise edge connects, and the channel counts of any edge: pure arithmetic (Flink's rule).

The scheduler and the workers use it, and must agree without sending channel lists.
"""

from __future__ import annotations

from yarrow.runtime.graph.operator_spec import PartitionerKind


def producers_of(kind: PartitionerKind, producers: int, consumers: int, consumer: int) -> range:
    """The producing subtasks that `consumer` reads."""
    if not kind.is_pointwise:
        return range(producers)
    if producers == consumers:
        return range(consumer, consumer + 1)
    if producers > consumers:
        return range(consumer * producers // consumers, (consumer + 1) * producers // consumers)
    return range(consumer * producers // consumers, consumer * producers // consumers + 1)


def consumers_of(kind: PartitionerKind, producers: int, consumers: int, producer: int) -> range:
    """The consuming subtasks to which `producer` writes: the other side of `producers_of`."""
    if not kind.is_pointwise:
        return range(consumers)
    if producers == consumers:
        return range(producer, producer + 1)
    if producers > consumers:
        # The one consumer c with c*P//C <= producer < (c+1)*P//C.
        first = ((producer + 1) * consumers - 1) // producers
        return range(first, first + 1)
    # All consumers c with c*P//C == producer.
    first = -(-producer * consumers // producers)
    last = -(-(producer + 1) * consumers // producers)
    return range(first, last)
