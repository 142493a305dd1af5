"""An operator that the engine does not bring, in two files: here its spec and how a program puts it behind a stream.

It numbers the records of each key. No list names it: a job ships this folder, and workers find the operator in it.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.datastream.data_stream import DataStream
from yarrow.datastream.keyed_stream import KeyedStream
from yarrow.runtime.graph.operator_spec import OperatorSpec


class NumberRecords(OperatorSpec, frozen=True, kw_only=True, tag="number_records"):
    """Gives each record its number among those of its key, from `first` on."""

    key_selector: bytes
    first: int = 1


def numbered(stream: KeyedStream, first: int = 1) -> DataStream:
    """Return the stream of (number, record)."""
    spec: Any = NumberRecords(key_selector=stream.key_selector, first=first)
    return stream._one_input("Numbering", spec, Types.TUPLE([Types.LONG(), stream.get_type()]))
