"""LeaderLookup: how a TaskExecutor process finds its ResourceManager: by its bootstrap, or by ZooKeeper.

Owner: the process's event loop. ZooKeeper's client is imported only if the configuration needs it.
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
    """The present and later leaders: always the one in the bootstrap, unless high-availability.type is zookeeper.

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
