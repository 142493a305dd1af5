"""ZooKeeperElection: one master process among those that want to lead, by an ephemeral sequential node each.

Owner: a thread of its own makes the calls to ZooKeeper and the decisions (leadership.py). The contender is called on
the event loop on which the election was started. kazoo's thread only notes events. A grant comes after the
transaction that raised the epoch, so two grants of any two processes never bear the same number.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections import deque
from typing import Final

import msgspec
from kazoo.exceptions import KazooException

from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.ha.leadership import Decision, Granted, Leadership, Revoked
from yarrow.runtime.ha.records import LeadershipLostError, RecordsError
from yarrow.runtime.ha.services import LeaderContender
from yarrow.runtime.ha.zookeeper_client import (
    BROKEN,
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    ZooKeeperClient,
    ZooKeeperUnreachableError,
    refusal,
)
from yarrow.runtime.ha.zookeeper_records import EPOCH_NODE, ZooKeeperRecords
from yarrow.runtime.rpc.leader import LeaderInformation

LEADER_FOLDER: Final = "leader"
_CANDIDATES: Final = "leader/candidates"
#: Seconds after which a follower looks at the queue again, should a watch have got lost.
_LOOK: Final = 5.0
#: Seconds between attempts while something is in the way.
_PAUSE: Final = 0.2
#: Seconds that `stop` spends on giving up the place in the queue.
_GOODBYE: Final = 2.0
_log = logging.getLogger(__name__)


def leader_node(component: str) -> str:
    """The node in which the leader of a component is published."""
    return f"{LEADER_FOLDER}/{component}"


class ZooKeeperElection:
    """Implements LeaderElection."""

    def __init__(self, client: ZooKeeperClient, ids: IdFactory) -> None:
        self._client = client
        self._clock = client.clock
        self._ids = ids
        self._leadership = Leadership()
        #: Version of the epoch's node by epoch, of the grants to this process.
        self._versions: dict[int, int] = {}
        #: The largest epoch heard of: epochs continue from here if somebody has removed the nodes.
        self._newest = 0
        #: Our node in the queue; "" = not in it.
        self._candidate = ""
        #: The beginning of the names of our nodes: it finds a node whose creation was not answered.
        self._name = ""
        #: Former nodes of ours that are still to be removed.
        self._left: list[str] = []
        self._events: deque[SessionEvent] = deque()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._contender: LeaderContender | None = None

    # LeaderElection.

    async def start(self, contender: LeaderContender) -> None:
        """See LeaderElection."""
        self._loop, self._contender = asyncio.get_running_loop(), contender
        self._client.listen(self._noted)
        try:
            await asyncio.to_thread(self._prepare)
        except ZooKeeperUnreachableError as error:
            # It was there: the address is right, and a master that ended now would be missed when it is back.
            _log.warning("leader election: %s; this master stands by until ZooKeeper is back", error)
        self._thread = threading.Thread(target=self._run, name="leader election", daemon=True)
        self._thread.start()

    async def publish(self, component: str, leader: LeaderInformation) -> None:
        """See LeaderElection."""
        await asyncio.to_thread(self._publish, component, leader)

    async def stop(self) -> None:
        """See LeaderElection."""
        self._stopped.set()
        self._wake.set()
        if self._thread is not None:
            await asyncio.to_thread(self._thread.join, 2 * _GOODBYE + self._client.session_timeout)

    def leads(self) -> bool:
        """See LeaderElection."""
        return not self._stopped.is_set() and self._leadership.may_lead(self._clock.monotonic())

    def records(self, epoch: int) -> ZooKeeperRecords:
        """The records of an epoch that was granted to this process."""
        return ZooKeeperRecords(self._client, epoch, self._versions[epoch])

    # The thread.

    def _noted(self, event: SessionEvent) -> None:
        self._events.append(event)
        self._wake.set()

    def _prepare(self) -> None:
        def make(timeout: float) -> None:
            self._client.ensure(LEADER_FOLDER, timeout, public=True)
            self._client.ensure(_CANDIDATES, timeout)
            try:
                self._client.create(EPOCH_NODE, str(self._newest).encode(), timeout)
            except NodeExistsError:
                self._hear_of_epoch(timeout)

        self._client.repeated(make, f"making {self._client.path(LEADER_FOLDER)}")

    def _hear_of_epoch(self, timeout: float) -> tuple[int, int]:
        """The present epoch, no smaller than any heard of, and the version of its node."""
        data, version = self._client.get(EPOCH_NODE, timeout)
        # Nobody hears a leader of an epoch that is over, whatever somebody has made of the node.
        self._newest = max(self._newest, int(data))
        return self._newest, version

    def _run(self) -> None:
        while not self._stopped.is_set():
            try:
                pause = self._step()
            except BROKEN as error:
                _log.info("leader election: %s, this master tries again", type(error).__name__)
                pause = _PAUSE
            except NoNodeError:
                _log.error(
                    "leader election: nodes of %s are gone, this master creates them again",
                    self._client.path(""),
                )
                pause = self._make_again()
            except KazooException as error:
                _log.error("leader election: ZooKeeper refused: %s", refusal(error))
                pause = _LOOK
            except Exception:
                _log.exception("leader election failed, this master tries again")
                pause = _LOOK
            # Time may have passed in calls: a lease that is over is over, whatever else went wrong.
            self._decided(self._leadership.passed(self._clock.monotonic()))
            if self._leadership.leads:
                pause = min(pause, max(0.0, self._leadership.ends - self._clock.monotonic()))
            self._wake.wait(pause)
            self._wake.clear()
        self._give_up()

    def _make_again(self) -> float:
        """Create the nodes that every candidacy needs; returns seconds until the next look."""
        self._candidate = self._name = ""
        try:
            self._prepare()
        except (*BROKEN, KazooException, RecordsError) as error:
            _log.error("leader election: the nodes of the election could not be created: %s", error)
            return _LOOK
        return _PAUSE

    def _step(self) -> float:
        """Look once at everything; returns seconds until the next look."""
        while self._events:
            self._session_event(self._events.popleft())
        self._decided(self._leadership.passed(self._clock.monotonic()))
        if not self._client.is_connected:
            return _LOOK
        if self._leadership.leads:
            return self._heartbeat()
        self._leave_former()
        if not self._candidate:
            self._stand()
        return self._look_at_queue()

    def _session_event(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.SUSPENDED:
                if self._leadership.leads:
                    _log.warning(
                        "the connection to ZooKeeper is suspended; this master leads on until its session may"
                        " have ended"
                    )
                self._decided(self._leadership.suspended())
            case SessionEvent.LOST:
                self._candidate = ""
                self._decided(self._leadership.lost("the ZooKeeper session has expired"))
            case SessionEvent.CONNECTED:
                _log.info("connected to ZooKeeper")

    def _decided(self, decision: Decision) -> None:
        assert self._loop is not None and self._contender is not None
        contender = self._contender
        match decision:
            case Granted(epoch):
                _log.info("this master leads, epoch %d", epoch)
                self._tell(lambda: contender.grant_leadership(epoch))
            case Revoked(cause):
                _log.warning("this master leads no more: %s", cause)
                # The place in the queue is another session's, or stands for a leadership that is over.
                if self._candidate:
                    self._left.append(self._candidate)
                    self._candidate = ""
                self._tell(lambda: contender.revoke_leadership(cause))

    def _tell(self, call: object) -> None:
        assert self._loop is not None
        if self._stopped.is_set():
            return
        try:
            self._loop.call_soon_threadsafe(call)  # type: ignore[arg-type]
        except RuntimeError:
            return  # The loop has closed: nobody is left to be told.

    # Leading.

    def _heartbeat(self) -> float:
        """Asks a majority of the servers whether our epoch is the newest: proves session and leadership by one answer.

        A read would be answered by a server that is cut off from the others, and knows nothing newer.
        """
        now = self._clock.monotonic()
        due = self._leadership.next_heartbeat
        if now < due:
            return due - now
        epoch = self._leadership.epoch
        transaction = self._client.transaction()
        transaction.check(EPOCH_NODE, self._versions[epoch])
        try:
            transaction.commit(max(0.05, self._leadership.ends - now))
        except (BadVersionError, NoNodeError):
            self._decided(self._leadership.lost(f"an epoch after {epoch} has begun, or the nodes are gone"))
            return 0.0
        if not self._events:
            self._decided(self._leadership.heard(now, self._client.session_timeout))
        return max(0.0, self._leadership.next_heartbeat - self._clock.monotonic())

    # Following.

    def _stand(self) -> None:
        timeout = self._client.session_timeout
        if self._name:
            # A node of an attempt whose answer got lost.
            made = [
                name for name in self._client.children(_CANDIDATES, timeout) if name.startswith(self._name)
            ]
            if made:
                self._candidate, self._name = f"{_CANDIDATES}/{made[0]}", ""
                return
        self._name = f"{self._ids.hex_id()}-"
        self._candidate = self._client.create(
            f"{_CANDIDATES}/{self._name}", b"", timeout, ephemeral=True, sequence=True
        )
        self._name = ""

    def _look_at_queue(self) -> float:
        timeout = self._client.session_timeout
        own = self._candidate.rpartition("/")[2]
        queue = sorted(self._client.children(_CANDIDATES, timeout), key=_place)
        if own not in queue:
            self._candidate = ""
            return 0.0
        before = queue[: queue.index(own)]
        if not before:
            self._win(timeout)
            return 0.0
        self._hear_of_epoch(timeout)
        # At the change before ours: nobody else has to wake up for it.
        gone = not self._client.exists(f"{_CANDIDATES}/{before[-1]}", timeout, self._queue_changed)
        return 0.0 if gone else _LOOK

    def _queue_changed(self, event: object) -> None:
        """On kazoo's thread. One watch however often it is set: kazoo keeps each other one until the node changes."""
        self._wake.set()

    def _win(self, timeout: float) -> None:
        newest, version = self._hear_of_epoch(timeout)
        epoch = newest + 1
        transaction = self._client.transaction()
        transaction.check(self._candidate, -1)
        transaction.set(EPOCH_NODE, str(epoch).encode(), version)
        sent = self._clock.monotonic()
        try:
            transaction.commit(timeout)
        except (BadVersionError, NoNodeError):
            return  # Another was quicker, or our session has just ended: looked at again.
        self._versions[epoch], self._newest = version + 1, epoch
        if self._events:
            return  # The session broke meanwhile: this epoch is spent, the next one is tried for.
        now = self._clock.monotonic()
        self._decided(self._leadership.elected(epoch, self._client.session_timeout, sent, now))

    def _leave_former(self) -> None:
        while self._left:
            with contextlib.suppress(NoNodeError):
                self._client.delete(self._left[0], self._client.session_timeout)
            del self._left[0]

    def _give_up(self) -> None:
        """The next in the queue need not wait for the session to end."""
        try:
            if self._candidate and self._client.is_connected:
                self._client.delete(self._candidate, _GOODBYE)
        except (*BROKEN, KazooException) as error:
            _log.info("the candidacy of this master ends with its ZooKeeper session: %s", error)

    # Publishing.

    def _publish(self, component: str, leader: LeaderInformation) -> None:
        epoch = self._leadership.epoch
        if not self.leads():
            raise LeadershipLostError(f"{component} is not published: this master leads no more")
        node, data = leader_node(component), msgspec.json.encode(leader)

        def put(timeout: float) -> None:
            for _ in range(3):
                transaction = self._client.transaction()
                transaction.check(EPOCH_NODE, self._versions[epoch])
                # Made again: the former node belongs to a session that may still have to end.
                if self._client.exists(node, timeout):
                    transaction.delete(node)
                transaction.create(node, data, ephemeral=True, public=True)
                try:
                    transaction.commit(timeout)
                    return
                except (NodeExistsError, NoNodeError):
                    continue
                except BadVersionError as error:
                    raise LeadershipLostError(
                        f"{component} is not published: another master has led since epoch {epoch}"
                    ) from error
            raise RecordsError(
                f"{component} is not published: another process changes {node} again and again"
            )

        self._client.repeated(put, f"publishing {component}")


def _place(name: str) -> int:
    """The place of a candidate in the queue: ZooKeeper's number at the end of its name."""
    return int(name.rpartition("-")[2])
