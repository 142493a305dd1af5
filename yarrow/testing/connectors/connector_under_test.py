"""ConnectorUnderTest: what a connector gives to be tested: fill, read all, outages, and what it claims.

Owner: the test's thread. `source` and `sink` are pickled into the job and run in workers; all else stays in the test.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

from yarrow.datastream.connectors.base import DeliveryGuarantee, Sink, Source

#: Begins an outage of the system, and ends it behind the block. It gets the process ids of the job's workers, so that
#: it may cut off one of them.
Outage = Callable[[Sequence[int]], AbstractContextManager[object]]


class ConnectorUnderTest(ABC):
    """A source and a sink with the systems behind them; made anew for each plan.

    The kit runs a job from the source to the sink. Rows are strings without line breaks, each of them once.
    """

    #: What the pair of source and sink claims: all rows once; all rows, some of them several times; no row that was
    #: never there.
    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE

    @abstractmethod
    def source(self) -> Source[str, Any]:
        """Return a source of all rows that `fill` brings; it does not end."""

    @abstractmethod
    def sink(self) -> Sink[str]:
        """Return a sink whose rows `read_all` finds."""

    def sink_of_second_job(self) -> Sink[str]:
        """Return a sink into the same target, for a job that runs beside the job of `sink`. The default: the same."""
        return self.sink()

    @abstractmethod
    def fill(self, rows: Sequence[str]) -> None:
        """Puts rows into the system that the source reads; returns when they are there for good."""

    @abstractmethod
    def read_all(self) -> Sequence[str]:
        """Return what a consumer of the sink's system sees now, from the beginning."""

    def outages(self) -> Mapping[str, Outage]:
        """Return ways in which the systems go away and come back, by name."""
        return {}

    def leftovers(self) -> Sequence[str]:
        """Return what writers have left open: transactions, staged files. There must be none when jobs have ended."""
        return ()
