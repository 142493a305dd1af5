"""Session mode: accepts jobs by REST until a client ends it, or until its attached client is gone.

Owner: the master's loop.
"""

from __future__ import annotations

import asyncio

from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.am.yarn.modes.cluster import LOOK, RunningCluster
from yarrow.runtime.config.options import rpc
from yarrow.runtime.yarn.gateways import FinalStatus


async def run_session(cluster: RunningCluster) -> ApplicationEnd:
    """Returns when the session must end."""
    asked = asyncio.ensure_future(cluster.plane.wait_for_shut_down())
    try:
        if not cluster.description.attached:
            await asked
        elif await _client_is_gone(cluster, asked):
            seconds = cluster.config.get(rpc.CLIENT_HEARTBEAT_TIMEOUT).seconds
            text = (
                "The session was attached to the client that started it. That client has been silent for "
                f"{seconds:g} s ({rpc.CLIENT_HEARTBEAT_TIMEOUT.key}), and the session has ended. Start the "
                "session with -d to let it outlive its client."
            )
            return ApplicationEnd(FinalStatus.SUCCEEDED, text)
    finally:
        asked.cancel()
    return ApplicationEnd(FinalStatus.SUCCEEDED, "The session was stopped.")


async def _client_is_gone(cluster: RunningCluster, asked: asyncio.Future[None]) -> bool:
    """Waits for the end; True if the client was gone before anybody asked for the end."""
    timeout = cluster.config.get(rpc.CLIENT_HEARTBEAT_TIMEOUT).seconds
    while not asked.done():
        if cluster.activity.seconds_since_heartbeat() > timeout:
            return True
        await asyncio.wait({asked}, timeout=LOOK)
    return False
