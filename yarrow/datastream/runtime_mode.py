"""Which way a program runs: as a stream, or as a batch program on Spark.

Part of graph building, on the client's thread. Must not look into sources: their specs say whether they end.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.config.options.execution import RuntimeMode
from yarrow.runtime.graph import batch_rules
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType


def in_mode(graph: JobGraph, mode: RuntimeMode) -> JobGraph:
    """The job as it runs in that mode; AUTOMATIC means BATCH where all sources end by themselves.

    Raises BatchRefusedError, with operator and remedy, for a program that BATCH does not run.
    """
    if mode is RuntimeMode.STREAMING or (mode is RuntimeMode.AUTOMATIC and not batch_rules.is_bounded(graph)):
        return graph
    batch_rules.check(graph)
    return msgspec.structs.replace(graph, job_type=JobType.BATCH)
