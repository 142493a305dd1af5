"""ZooKeeperRetrieval: the leader of a component, by a watch on the node in which the leader publishes itself.

Owner: the event loop of whoever calls `start`; the watch is told on kazoo's thread and hands over. A leader whose
epoch is older than one seen before is not announced: a server of the quorum may lag behind.
"""

from __future__ import annotations

import asyncio
import logging
import threading

import msgspec
from kazoo.exceptions import KazooException

from yarrow.runtime.ha.services import epoch_of_token
from yarrow.runtime.ha.zookeeper_client import BROKEN, ZooKeeperClient, refusal
from yarrow.runtime.ha.zookeeper_election import leader_node
from yarrow.runtime.rpc.leader import LeaderInformation, LeaderListener

#: Seconds between attempts to watch.
_PAUSE = 1.0
_log = logging.getLogger(__name__)


def decode_leader(data: bytes | None) -> LeaderInformation | None:
    """The leader in a node; None for an empty or unreadable node."""
    if not data:
        return None
    try:
        return msgspec.json.decode(data, type=LeaderInformation)
    except msgspec.DecodeError as error:
        _log.error("a leader's node holds no address: %s", error)
        return None


class ZooKeeperRetrieval:
    """Implements LeaderRetrieval for listeners of any loop."""

    def __init__(self, client: ZooKeeperClient, component: str) -> None:
        self._client = client
        self._component = component
        self._lock = threading.Lock()
        self._listeners: list[tuple[asyncio.AbstractEventLoop, LeaderListener]] = []
        self._leader: LeaderInformation | None = None
        self._epoch = 0
        self._watching = False

    def start(self, listener: LeaderListener) -> None:
        """See LeaderRetrieval."""
        loop = asyncio.get_running_loop()
        with self._lock:
            self._listeners.append((loop, listener))
            leader, watch = self._leader, not self._watching
            self._watching = True
        if leader is not None:
            loop.call_soon(self._deliver, listener, leader)
        if watch:
            # The first look is a call to ZooKeeper: not on the loop.
            threading.Thread(target=self._watch, name=f"leader of {self._component}", daemon=True).start()

    def stop(self, listener: LeaderListener) -> None:
        """See LeaderRetrieval."""
        with self._lock:
            self._listeners = [entry for entry in self._listeners if entry[1] != listener]

    def _watch(self) -> None:
        """Until there is a watch, which then outlives sessions by itself."""
        pause = threading.Event()
        while not self._client.is_stopped:
            try:
                self._client.watch_data(leader_node(self._component), self._changed)
                return
            except BROKEN as error:
                _log.info("the leader of %s is not watched yet: %s", self._component, type(error).__name__)
            except KazooException as error:
                _log.error("the leader of %s cannot be watched: %s", self._component, refusal(error))
            pause.wait(_PAUSE)

    def _changed(self, data: bytes | None) -> bool:
        """On kazoo's thread."""
        leader = decode_leader(data)
        with self._lock:
            epoch = 0 if leader is None else epoch_of_token(leader.leader_id)
            if leader == self._leader or (leader is not None and epoch < self._epoch):
                return True
            self._epoch = max(self._epoch, epoch)
            self._leader = leader
            listeners = list(self._listeners)
        for loop, listener in listeners:
            try:
                loop.call_soon_threadsafe(self._deliver, listener, leader)
            except RuntimeError:
                self.stop(listener)  # Its loop has closed.
        return True

    def _deliver(self, listener: LeaderListener, leader: LeaderInformation | None) -> None:
        """On the listener's loop, unless it was stopped meanwhile or another leader came."""
        with self._lock:
            if leader != self._leader or all(entry[1] != listener for entry in self._listeners):
                return
        listener(leader)
