"""Where a TaskExecutor process finds its ResourceManager: in its bootstrap, or by ZooKeeper when masters are elected.

Owner: the process's event loop. ZooKeeper's client is loaded only where the configuration asks for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.services import RESOURCE_MANAGER
from yarrow.runtime.ha.settings import is_highly_available
from yarrow.runtime.rpc.bootstrap import TaskExecutorBootstrap
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation, LeaderRetrieval


@asynccontextmanager
async def resource_manager_leader(
    bootstrap: TaskExecutorBootstrap, config: Settings
) -> AsyncIterator[LeaderRetrieval]:
    """Who leads, now and at each change: the one in the bootstrap for ever, unless high-availability.type is zookeeper.

    Raises ConfigError and ZooKeeperUnreachableError.
    """
    if not is_highly_available(config):
        yield AnnouncedLeader(
            LeaderInformation(
                address=bootstrap.resource_manager_address, leader_id=bootstrap.resource_manager_id
            )
        )
        return
    from yarrow.runtime.ha.zookeeper_services import open_services

    services = await asyncio.to_thread(open_services, config, bootstrap.data_secret, stores=False)
    try:
        yield services.leader(RESOURCE_MANAGER)
    finally:
        await services.close()
