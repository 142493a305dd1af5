"""Rules of batch jobs: which programs BATCH refuses, each by operator and remedy. Pure.

Owner: any thread; the client asks when it builds the graph. The rules are those of docs/batch.md.
"""

from __future__ import annotations

from yarrow.runtime.common.errors import UnsupportedFeatureError
from yarrow.runtime.graph.job_graph import JobGraph


class BatchRefusedError(UnsupportedFeatureError):
    """A program cannot run in BATCH mode; the message names the operator and the remedy."""

    def __init__(self, operator: str, problem: str, remedy: str) -> None:
        super().__init__(f"operator '{operator}': {problem} in execution.runtime-mode BATCH; {remedy}")
        self.operator = operator


def check(graph: JobGraph) -> None:
    """Raises BatchRefusedError for the first operator that BATCH refuses."""
