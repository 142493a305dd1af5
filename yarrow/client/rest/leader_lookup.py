"""The REST server of the leading master, for clients of a cluster with elected masters.

Owner: the main thread; blocking. Loaded only if the configuration names ZooKeeper.
"""

from __future__ import annotations

from yarrow.client.errors import CommandError
from yarrow.runtime.config.options import high_availability, rest
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.services import REST_SERVER


def leading_rest_url(config: Settings) -> str:
    """The leader's URL; waits for a leader up to rest.await-leader-timeout.

    Raises CommandError if none comes, ConfigError and ZooKeeperUnreachableError.
    """
    from yarrow.runtime.ha.zookeeper_services import find_leader

    patience = config.get(rest.AWAIT_LEADER_TIMEOUT).seconds
    leader = find_leader(config, REST_SERVER, patience)
    if leader is None:
        raise CommandError(
            f"No master of the cluster {config.get(high_availability.CLUSTER_ID)}"
            f" ({high_availability.CLUSTER_ID.key}) leads: ZooKeeper at"
            f" {config.get(high_availability.ZOOKEEPER_QUORUM)} named none within {patience:g} s"
            f" ({rest.AWAIT_LEADER_TIMEOUT.key}). Start one with `yarrow jobmanager`, or name a REST server by -m."
        )
    return leader.address
