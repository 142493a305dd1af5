"""ClientMetrics: metrics of a client by the names of Java's clients, as far as librdkafka's statistics tell the same.

Owner: the thread that polls the client takes statistics; any thread reads values. Source: STATISTICS.md of librdkafka.
Only the fields that are needed are decoded. Must not import the client library.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

#: How often clients make statistics.
STATISTICS_MS: Final = "1000"

#: Counts that only grow: Java's name without `-total` and `-rate`, and the field of the statistics.
_OF_EACH: Final = {
    "incoming-byte": "rx_bytes",
    "outgoing-byte": "tx_bytes",
    "request": "tx",
    "response": "rx",
}
OF_CONSUMER: Final = {"records-consumed": "rxmsgs", "bytes-consumed": "rxmsg_bytes"}

_CONNECTED: Final = frozenset({"UP", "UPDATE"})


class _Window(msgspec.Struct, frozen=True):
    """Some values of the last second."""

    avg: int = 0
    cnt: int = 0


class _Broker(msgspec.Struct):
    state: str = ""
    waitresp_cnt: int = 0
    rtt: _Window = _Window()
    int_latency: _Window = _Window()


class _Statistics(msgspec.Struct):
    ts: int = 0
    tx: int = 0
    tx_bytes: int = 0
    rx: int = 0
    rx_bytes: int = 0
    rxmsgs: int = 0
    rxmsg_bytes: int = 0
    brokers: dict[str, _Broker] = {}


_DECODER = msgspec.json.Decoder(_Statistics)


class ClientMetrics:
    """The metrics of one client, or of several that follow each other."""

    def __init__(self, own: Mapping[str, str]) -> None:
        """`own` has the counts of this kind of client alone, for example OF_CONSUMER."""
        self._counts = {**_OF_EACH, **own}
        #: The counts of clients that have ended.
        self._before = dict.fromkeys(self._counts, 0)
        self._last: _Statistics | None = None
        #: Replaced as a whole; any thread may read them.
        self.values: Mapping[str, float] = {}

    def take(self, text: str | bytes) -> None:
        """Take statistics of the present client."""
        found = _DECODER.decode(text)
        last = self._last or _Statistics()
        seconds = (found.ts - last.ts) / 1_000_000 if self._last is not None else 0.0
        values: dict[str, float] = {}
        for name, field in self._counts.items():
            count = getattr(found, field)
            values[f"{name}-total"] = self._before[name] + count
            if seconds > 0:
                values[f"{name}-rate"] = (count - getattr(last, field)) / seconds
        brokers = found.brokers.values()
        values["connection-count"] = sum(broker.state in _CONNECTED for broker in brokers)
        values["requests-in-flight"] = sum(broker.waitresp_cnt for broker in brokers)
        for name, windows in (
            ("request-latency-avg", [broker.rtt for broker in brokers]),
            ("record-queue-time-avg", [broker.int_latency for broker in brokers]),
        ):
            if number := sum(window.cnt for window in windows):
                # Microseconds there, milliseconds with Java.
                values[name] = sum(window.avg * window.cnt for window in windows) / number / 1000
        self._last, self.values = found, values

    def next_client(self) -> None:
        """Keep the counts of a client that ends: those of the next one begin at 0."""
        if self._last is not None:
            for name, field in self._counts.items():
                self._before[name] += getattr(self._last, field)
        self._last = None
