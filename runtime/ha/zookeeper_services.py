"""ZooKeeperServices: election, retrieval and records of one cluster id over one session; and a single look for clients.

Owner: any loop; blocking parts run in threads. Made by `open_services`, which fails with a sentence when the quorum
cannot be reached.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection

import msgspec

from yarrow.runtime.common.ids import IdFactory, RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.ha.records import LeaderRecords
from yarrow.runtime.ha.settings import ZooKeeperSettings, storage_directory, zookeeper_settings
from yarrow.runtime.ha.stored_files import remove_stored_files
from yarrow.runtime.ha.zookeeper_client import NoNodeError, ZooKeeperClient
from yarrow.runtime.ha.zookeeper_election import LEADER_FOLDER, ZooKeeperElection, leader_node
from yarrow.runtime.ha.zookeeper_retrieval import ZooKeeperRetrieval, decode_leader
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderRetrieval


class ZooKeeperServices:
    """Implements HighAvailabilityServices."""

    is_highly_available = True

    def __init__(
        self,
        settings: ZooKeeperSettings,
        storage: str = "",
        secret: bytes = b"",
        ids: IdFactory | None = None,
    ) -> None:
        """`storage`: the folder of the cluster id; "" for processes that never lead."""
        self.storage_directory = storage
        self.client = ZooKeeperClient(settings, secret)
        self._election = ZooKeeperElection(self.client, ids or RandomIdFactory())
        self._retrievals: dict[str, ZooKeeperRetrieval] = {}

    def start(self) -> None:
        """Connects. Blocking; ZooKeeperUnreachableError."""
        self.client.start()

    @property
    def election(self) -> ZooKeeperElection:
        """See HighAvailabilityServices."""
        return self._election

    def records(self, epoch: int) -> LeaderRecords:
        """See HighAvailabilityServices."""
        return self._election.records(epoch)

    def leader(self, component: str) -> LeaderRetrieval:
        """See HighAvailabilityServices."""
        if component not in self._retrievals:
            self._retrievals[component] = ZooKeeperRetrieval(self.client, component)
        return self._retrievals[component]

    async def close(self) -> None:
        """See HighAvailabilityServices."""
        await self._election.stop()
        await asyncio.to_thread(self.client.stop)

    async def remove_all_but(self, kept: Collection[str]) -> None:
        """See HighAvailabilityServices."""
        await asyncio.to_thread(self._remove_all_but, kept)

    def _remove_all_but(self, kept: Collection[str]) -> None:
        def names(timeout: float) -> list[str]:
            try:
                return self.client.children("", timeout)
            except NoNodeError:
                return []

        for name in self.client.repeated(names, "reading the stored data of the cluster"):
            if name not in kept and name != LEADER_FOLDER:
                self.client.delete_all(name)
        self._remove_storage()

    async def close_and_clean_up(self) -> None:
        """See HighAvailabilityServices."""
        await self._election.stop()
        try:
            await asyncio.to_thread(self._clean_up)
        finally:
            await asyncio.to_thread(self.client.stop)

    def _clean_up(self) -> None:
        # Pointers first: without them nobody needs their targets.
        self.client.delete_all()
        self.client.delete_parents()
        self._remove_storage()

    def _remove_storage(self) -> None:
        if self.storage_directory:
            remove_stored_files(self.storage_directory)


def open_services(config: Settings, secret: bytes = b"", *, stores: bool = True) -> ZooKeeperServices:
    """Connected services of the cluster id of a configuration. Blocking.

    `stores` False: of a process that only looks for leaders. Raises ConfigError naming what is not set,
    ZooKeeperUnreachableError naming what was tried.
    """
    services = ZooKeeperServices(
        zookeeper_settings(config), storage_directory(config) if stores else "", secret
    )
    services.start()
    return services


def find_leader(config: Settings, component: str, seconds: float) -> LeaderInformation | None:
    """The leader of a component; waits up to `seconds` for one. Blocking; errors as `open_services`."""
    # Everybody may read the leaders: no secret is needed.
    client = ZooKeeperClient(msgspec.structs.replace(zookeeper_settings(config), creator_only=False))
    client.start()
    try:
        found: list[LeaderInformation] = []
        came = threading.Event()

        def told(data: bytes | None) -> bool:
            leader = decode_leader(data)
            if leader is not None:
                found.append(leader)
                came.set()
            return leader is None

        client.watch_data(leader_node(component), told)
        came.wait(seconds)
        return found[0] if found else None
    finally:
        client.stop()
