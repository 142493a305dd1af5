"""Submits a JobGraph to the Dispatcher: in the message if it is small, else through the blob store.

Owner: the caller's loop. The blob store is passed in: a caller beside the control plane reaches it without
messages.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from yarrow.runtime.common.ids import JobID
from yarrow.runtime.graph.job_graph import JobGraph, encode_job_graph
from yarrow.runtime.rpc.gateways import DispatcherGateway

#: Bytes. A larger encoded JobGraph goes through the blob store: messages have a size limit, and carry other
#: things too.
INLINE_BYTES: Final = 1 << 20


async def submit_job_graph(
    dispatcher: DispatcherGateway, store_blob: Callable[[bytes], Awaitable[str]], graph: JobGraph
) -> JobID:
    """Submits `graph`; raises the errors of DispatcherGateway.submit_job."""
    encoded = encode_job_graph(graph)
    if len(encoded) <= INLINE_BYTES:
        return await dispatcher.submit_job(encoded)
    return await dispatcher.submit_stored_job(await store_blob(encoded))
