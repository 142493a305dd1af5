"""Names of exchanges in snapshots: the same in every graph in which the exchange means the same.

Owner: none (pure). Tasks write records in flight under these names, and the assignment of snapshots reads
them.
"""

from __future__ import annotations

from yarrow.runtime.graph.job_graph import JobEdge, JobGraph


def edge_name(job: JobGraph, edge: JobEdge) -> str:
    """`<emitting operator>/<side output>-><reading operator>/<input>`; operators by id."""
    source = job.vertex(edge.source).operators[edge.source_operator].id
    target = job.vertex(edge.target).operators[0].id
    return f"{source}/{edge.side_output or ''}->{target}/{edge.target_input}"


def edges_by_name(job: JobGraph) -> dict[str, JobEdge]:
    """All exchanges of a job."""
    return {edge_name(job, edge): edge for edge in job.edges}
