"""EncodedGraphs: a job's graph in the encoded form that is sent to TaskExecutors, encoded once for all of them.

Owner: the JobMaster's loop; its threads store large encoded graphs. The ExecutionGraph says which graph is
the present one.
"""

from __future__ import annotations

from yarrow.am.execution.blob_store import BlobStore
from yarrow.am.execution.execution_graph import ExecutionGraph
from yarrow.am.jobmaster.links.deployment import EncodedGraph
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.endpoint import RpcEndpoint


class EncodedGraphs:
    """The encoded present graph of one job and, during a rescale, the encoded next graph."""

    def __init__(
        self, owner: RpcEndpoint, graph: ExecutionGraph, blobs: BlobStore, inline_bytes: int
    ) -> None:
        """A graph of more than `inline_bytes` travels through `blobs`."""
        self._owner = owner
        self._graph = graph
        self._blobs = blobs
        self._inline_bytes = inline_bytes
        #: By the identity of the JobGraph, which lives as long as the job may use it.
        self._encoded: dict[int, EncodedGraph] = {}

    @property
    def present(self) -> EncodedGraph:
        """The encoded present graph; `prepare` must have run for it."""
        return self._encoded[id(self._graph.job)]

    async def prepare(self, job: JobGraph) -> None:
        """Encodes `job`, the present graph or the next one, and forgets all others."""
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
