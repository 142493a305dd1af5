"""Hands a JobGraph to the Dispatcher: in the message while it is small, else by way of the blob store.

Owner: the caller's loop. The store is passed in, since who submits beside the control plane reaches it without
messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.gateways import DispatcherGateway

#: A larger encoded JobGraph is stored first: messages have a size limit, and carry other things meanwhile.
INLINE_BYTES: Final = 1 << 20


async def submit_job_graph(
    dispatcher: DispatcherGateway, store_blob: Callable[[bytes], Awaitable[str]], graph: JobGraph
) -> JobID:
    """Submits `graph`; the errors are those of DispatcherGateway.submit_job."""
    encoded = encode_job_graph(graph)
    if len(encoded) <= INLINE_BYTES:
        return await dispatcher.submit_job(encoded)
    return await dispatcher.submit_stored_job(await store_blob(encoded))
