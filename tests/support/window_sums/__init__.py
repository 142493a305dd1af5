"""An operator with state by window, in two files: here its spec and how a program puts it behind a keyed stream.

It sums numbers by key and tumbling window of event time. No list names it.
"""

from __future__ import annotations

from typing import Any

from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.runtime.graph.operator_spec import OperatorSpec


class SumByWindow(OperatorSpec, frozen=True, kw_only=True, tag="sum_by_window"):
    """Sums the second field of the records of each key and window of `size` ms."""

    key_selector: bytes
    size: int


def summed_by_window(stream: KeyedStream, size: int) -> DataStream:
    """Return the stream of (key, start of the window, sum), each when the watermark has passed its window."""
    spec: Any = SumByWindow(key_selector=stream.key_selector, size=size)
    return stream._one_input("Sums by window", spec, None)
