"""Removal of the nodes of a cluster id in ZooKeeper whose masters are gone for good.

Owner: the caller's thread; blocking. It must be called for ids alone that never come again. kazoo is imported when
nodes are removed: clients that remove none do not pay for it.
"""

from __future__ import annotations

import msgspec

from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.settings import zookeeper_settings


def remove_nodes(config: Settings) -> None:
    """Removes the nodes of the cluster id that the configuration names. Raises RecordsError."""
    from yarrow.runtime.ha.zookeeper_client import ZooKeeperClient

    # The application's secret is its own: nodes that only its members may change are beyond us.
    client = ZooKeeperClient(msgspec.structs.replace(zookeeper_settings(config), creator_only=False))
    client.start()
    try:
        client.delete_all()
        client.delete_parents()
    finally:
        client.stop()
