"""EncodedGraphs: the graph of a job as it travels to TaskExecutors, encoded once for all of them.

Owner: the JobMaster's loop; encoded graphs that are large are stored in its threads. Which graph the job has is the
ExecutionGraph's business.
"""

from __future__ import annotations

from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.links.deployment import EncodedGraph
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.endpoint import RpcEndpoint


class EncodedGraphs:
    """The present graph of one job; while the job is rescaled, also the one that it is to have."""

    def __init__(
        self, owner: RpcEndpoint, graph: ExecutionGraph, blobs: BlobStore, inline_bytes: int
    ) -> None:
        """A graph of more than `inline_bytes` travels through `blobs`."""
        self._owner = owner
        self._graph = graph
        self._blobs = blobs
        self._inline_bytes = inline_bytes
        #: By the identity of the JobGraph, which lives as long as the job may become it.
        self._encoded: dict[int, EncodedGraph] = {}

    @property
    def present(self) -> EncodedGraph:
        """The one that the job has now; it was prepared before."""
        return self._encoded[id(self._graph.job)]

    async def prepare(self, job: JobGraph) -> None:
        """Encodes `job`, the present graph or the one to come; others are forgotten."""
        present = self._graph.job
        kept = {id(present): self._encoded[id(present)]} if id(present) in self._encoded else {}
        if job is not present or not kept:
            kept[id(job)] = await self._encode(job)
        self._encoded = kept

    async def _encode(self, job: JobGraph) -> EncodedGraph:
        data = encode_job_graph(job)
        if len(data) <= self._inline_bytes:
            return EncodedGraph(data)
        return EncodedGraph(b"", await self._owner.run_blocking(self._blobs.put_here, data))
