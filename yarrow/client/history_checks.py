"""What a program must not hold so that its history can be read in batch mode: each refusal names operator and remedy.

Owner: the client's thread, before anything is started. It loads user functions, and calls none. Must not change the
graph.
"""

from __future__ import annotations

from typing import Any

import msgspec

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.container.codegen.user_functions import load_function
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.functions import CheckpointedFunction
from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.config.options import batch, pipeline
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.job_graph import JobGraph, OperatorDescriptor


class HistoryRefusedError(UnsupportedFeatureError):
    """The history of a program cannot be read in batch mode; the message names the operator and the remedy."""

    def __init__(self, operator: str, problem: str, remedy: str) -> None:
        super().__init__(f"{batch.HISTORY_UNTIL.key} refuses operator '{operator}': {problem}; {remedy}")
        self.operator = operator


def check_history(graph: JobGraph, settings: Settings, *, drops_rows: bool) -> None:
    """Raises HistoryRefusedError for the first operator whose state or time batch mode cannot make, upstream first.

    `drops_rows`: no row reaches a sink.
    """
    ingestion = settings.get(pipeline.TIME_CHARACTERISTIC) is TimeCharacteristic.INGESTION_TIME
    for vertex in graph.vertices:
        for operator in vertex.operators:
            if operator.spec.is_source:
                _check_source(operator, ingestion=ingestion)
            if operator.spec.is_sink:
                if drops_rows:
                    continue
                _check_sink(operator)
            _check_functions(operator)


def _check_source(operator: OperatorDescriptor, *, ingestion: bool) -> None:
    if operator.spec.as_history is None:
        raise HistoryRefusedError(
            operator.name,
            "it does not end, and says no positions up to which its history can be read",
            "implement `history()` in its Source, or read with from_source and a Source that ends or that is a"
            " FileSource",
        )
    if ingestion:
        raise HistoryRefusedError(
            operator.name,
            "its records get the time at which they are read, which a second reading does not give",
            f"set {pipeline.TIME_CHARACTERISTIC.key} to EventTime",
        )


def _check_sink(operator: OperatorDescriptor) -> None:
    drop = f"set {batch.HISTORY_OUTPUT.key} to DROP"
    if operator.spec.collects_for is not None:
        raise HistoryRefusedError(
            operator.name,
            "execute_and_collect gets the rows of one job, and history is a job of its own",
            f"use a sink, or {drop}",
        )
    sink = _loaded(operator, "sink")
    if isinstance(sink, Sink) and type(sink).create_committer is not Sink.create_committer:
        raise HistoryRefusedError(
            operator.name,
            "its rows become visible by commits, and those of history would not be tied to the savepoint",
            f"use a sink without commits, or {drop}",
        )


def _check_functions(operator: OperatorDescriptor) -> None:
    if operator.spec.is_shipped:
        raise HistoryRefusedError(
            operator.name,
            "it is an operator of another package, which does not say how it keeps time by key",
            "write it as a KeyedProcessFunction, or let the stream read its history",
        )
    for name in ("watermark_strategy", "strategy"):
        strategy = _loaded(operator, name)
        if isinstance(strategy, WatermarkStrategy) and strategy.has_own_generator:
            raise HistoryRefusedError(
                operator.name,
                "only its own watermark generator knows how far time has come between two records of a key",
                "use for_bounded_out_of_orderness or for_monotonous_timestamps",
            )
    if isinstance(_loaded(operator, "function"), CheckpointedFunction):
        raise HistoryRefusedError(
            operator.name,
            "its function keeps operator state (CheckpointedFunction), which has no key by which a stream could go on",
            "keep it in keyed state behind a key_by",
        )


def _loaded(operator: OperatorDescriptor, name: str) -> Any:
    """The object that a field of the spec holds pickled; None if there is none."""
    blob = msgspec.structs.asdict(operator.spec).get(name)
    return load_function(blob, operator.name) if isinstance(blob, bytes) else None
