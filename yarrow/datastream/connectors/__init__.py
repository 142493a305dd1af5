"""Sources and sinks: the interfaces, and one module for each place that records come from or go to.

Owner: none. Exports the interfaces and what most sources share; connectors are imported from their own
modules, so that a program loads only what it uses.
"""

from yarrow.common.values.error_handling import ErrorPolicy
from yarrow.datastream.connectors.base import (
    Boundedness,
    Committer,
    DeliveryGuarantee,
    KeptBy,
    NothingAvailable,
    Replay,
    Sink,
    SinkWriter,
    SinkWriterContext,
    Source,
    SourceReader,
    SourceReaderContext,
    SourceRecords,
    SourceSplit,
    SplitEnumerator,
    SplitEnumeratorContext,
)
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS, DeadLetter
from yarrow.datastream.connectors.split_reading import OneByOneReader, OnRequestEnumerator

__all__ = [
    "DEAD_LETTERS",
    "Boundedness",
    "Committer",
    "DeadLetter",
    "DeliveryGuarantee",
    "ErrorPolicy",
    "KeptBy",
    "NothingAvailable",
    "OnRequestEnumerator",
    "OneByOneReader",
    "Replay",
    "Sink",
    "SinkWriter",
    "SinkWriterContext",
    "Source",
    "SourceReader",
    "SourceReaderContext",
    "SourceRecords",
    "SourceSplit",
    "SplitEnumerator",
    "SplitEnumeratorContext",
]
