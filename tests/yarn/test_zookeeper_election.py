"""Election, records and retrieval on a real ZooKeeper: sessions that end, servers that are away, masters that duel."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.security import OPEN_ACL_UNSAFE, make_acl

from tests.yarn.private_zookeeper import PrivateZooKeeper, remove_at_once
from yarrow.am.checkpoint.recovery_records import RecordedCheckpointRecovery
from yarrow.am.checkpoint.recovery_store import RecoveryStoreError
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.ha.records import Delete, LeadershipLostError, Put, RecordsError
from yarrow.runtime.ha.services import RESOURCE_MANAGER, token_of_epoch
from yarrow.runtime.ha.settings import ZooKeeperSettings
from yarrow.runtime.ha.zookeeper_client import ZooKeeperUnreachableError
from yarrow.runtime.ha.zookeeper_services import ZooKeeperServices
from yarrow.runtime.rpc.leader import LeaderInformation

#: Seconds of a session in these tests. A pause of a busy machine ends none that the test does not end.
SESSION = 10.0
#: Seconds of a session that may end at any time: the next leader follows soon.
SHORT_SESSION = 2.0
DEADLINE = 120.0
_clock = SystemClock()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateZooKeeper]:
    server = PrivateZooKeeper(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.stop()


class Master:
    """One process that wants to lead, as far as ZooKeeper sees it."""

    def __init__(
        self,
        zookeeper: PrivateZooKeeper,
        cluster: str,
        history: list[tuple[str, int]],
        name: str,
        session: float = SESSION,
    ) -> None:
        self.services = ZooKeeperServices(settings(zookeeper, cluster, session_timeout=session))
        self.history = history
        self.name = name
        self.epoch: int | None = None
        #: (cause, moment) of each revocation.
        self.revoked: list[tuple[str, float]] = []

    def grant_leadership(self, epoch: int) -> None:
        self.epoch = epoch
        self.history.append((self.name, epoch))

    def revoke_leadership(self, cause: str) -> None:
        self.epoch = None
        self.revoked.append((cause, _clock.monotonic()))

    async def start(self) -> None:
        await asyncio.to_thread(self.services.start)
        await self.services.election.start(self)

    async def lead(self) -> None:
        """The same, until it leads by the first epoch."""
        await self.start()
        await eventually(lambda: self.epoch == 1)

    async def expire(self) -> None:
        """Ends the session as ZooKeeper would: another client takes it over and closes it."""
        session = self.services.client.session
        other = KazooClient(self.services.client.settings.quorum, client_id=session)

        def close() -> None:
            other.start(DEADLINE)
            other.stop()
            other.close()

        await asyncio.to_thread(close)


def settings(zookeeper: PrivateZooKeeper, cluster: str, **others: object) -> ZooKeeperSettings:
    values: dict[str, object] = {"session_timeout": SESSION, "retry_wait": 1.0, **others}
    return ZooKeeperSettings(quorum=zookeeper.quorum, root=f"/test/{cluster}", **values)  # type: ignore[arg-type]


def leader(epoch: int, name: str = "a") -> LeaderInformation:
    return LeaderInformation(
        address=f"grpc://{name}:1/resourcemanager", leader_id=token_of_epoch(epoch, "ab" * 16)
    )


async def eventually(condition: Callable[[], bool]) -> None:
    async def wait() -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    await asyncio.wait_for(wait(), DEADLINE)


def run(body: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(body(), 3 * DEADLINE)

    asyncio.run(bounded())


def test_one_leads_and_the_next_takes_over(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        history: list[tuple[str, int]] = []
        first, second = (Master(zookeeper, "take-over", history, name) for name in "ab")
        await first.lead()
        await second.start()
        seen: list[LeaderInformation | None] = []
        watcher = second.services.leader(RESOURCE_MANAGER)
        watcher.start(seen.append)
        await first.services.election.publish(RESOURCE_MANAGER, leader(1))
        await eventually(lambda: bool(seen) and seen[-1] == leader(1))
        assert second.epoch is None and not second.services.election.leads()
        await first.services.close()
        await eventually(lambda: second.epoch == 2)
        assert not first.services.election.leads()
        await second.services.election.publish(RESOURCE_MANAGER, leader(2, "b"))
        await eventually(lambda: seen[-1] == leader(2, "b"))
        await second.services.close_and_clean_up()
        await asyncio.to_thread(assert_gone, zookeeper, "take-over")

    run(body)


def test_who_starts_as_zookeeper_goes_away_stands_by_until_it_is_back(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        master = Master(zookeeper, "away-at-the-start", [], "a")
        await asyncio.to_thread(master.services.start)
        zookeeper.stop()
        try:
            await master.services.election.start(master)
            assert master.epoch is None
        finally:
            await asyncio.to_thread(zookeeper.start)
        await eventually(lambda: master.epoch == 1)
        await master.services.close_and_clean_up()

    run(body)


def assert_gone(zookeeper: PrivateZooKeeper, cluster: str) -> None:
    client = KazooClient(zookeeper.quorum)
    client.start(DEADLINE)
    try:
        assert client.exists(f"/test/{cluster}") is None
    finally:
        client.stop()
        client.close()


def test_writes_of_a_former_leadership_are_refused(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        first, second = (Master(zookeeper, "fencing", [], name) for name in "ab")
        await first.lead()
        old = first.services.records(1)
        await asyncio.to_thread(old.write, Put("jobs/x", b"1"), Put("jobs/x/deep/er", b"2"))
        assert await asyncio.to_thread(old.read, "jobs/x/deep/er") == b"2"
        await second.start()
        await first.expire()
        await eventually(lambda: second.epoch == 2)
        new = second.services.records(2)
        assert await asyncio.to_thread(new.children, "jobs") == ("x",)
        with pytest.raises(LeadershipLostError, match="since epoch 1"):
            await asyncio.to_thread(old.write, Put("jobs/y", b""))
        with pytest.raises(LeadershipLostError):
            await asyncio.to_thread(old.write, Delete("jobs"))
        store = RecordedCheckpointRecovery(old).of_job(JobID("ab" * 16))
        with pytest.raises(RecoveryStoreError):
            await asyncio.to_thread(store.add, 1, "hdfs:///chk-1")
        await asyncio.to_thread(new.write, Delete("jobs"))
        assert await asyncio.to_thread(new.children, "jobs") == ()
        await asyncio.gather(first.services.close(), second.services.close())

    run(body)


def test_a_lost_session_revokes_and_the_next_epoch_follows(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        master = Master(zookeeper, "expired", [], "a")
        await master.lead()
        await master.expire()
        await eventually(lambda: master.epoch is not None and master.epoch > 1)
        assert len(master.revoked) == 1
        await master.services.close()

    run(body)


def test_a_pause_of_the_server_within_the_session_changes_nothing(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        master = Master(zookeeper, "short-pause", [], "a")
        await master.lead()
        for _ in range(2):
            zookeeper.signal(signal.SIGSTOP)
            await asyncio.sleep(SESSION / 3)
            zookeeper.signal(signal.SIGCONT)
            await asyncio.to_thread(master.services.records(1).write, Put("jobs/x", b""))
        assert (master.epoch, master.revoked) == (1, [])
        await master.services.close()

    run(body)


def test_a_restart_of_the_server_within_the_session_changes_nothing(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        master = Master(zookeeper, "restart", [], "a")
        # Time for a server to start on a busy machine; while it does it may take a connection and say nothing.
        master.services = ZooKeeperServices(
            settings(zookeeper, "restart", session_timeout=30.0, max_retries=20)
        )
        await master.lead()
        await asyncio.to_thread(zookeeper.stop)
        await asyncio.to_thread(zookeeper.start)
        await asyncio.to_thread(master.services.records(1).write, Put("jobs/x", b""))
        assert (master.epoch, master.revoked) == (1, [])
        await master.services.close()

    run(body)


def test_who_hears_nothing_stops_leading_before_the_session_ends(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        master = Master(zookeeper, "long-pause", [], "a")
        await master.lead()
        records = master.services.records(1)
        zookeeper.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: bool(master.revoked))
            # Not by the end of the session, of which only the server could tell.
            assert "did not answer for 9 s of a session timeout of 10 s" in master.revoked[0][0]
            assert not master.services.election.leads()
            with pytest.raises(RecordsError):
                await asyncio.to_thread(records.write, Put("jobs/x", b""))
        finally:
            zookeeper.signal(signal.SIGCONT)
        await eventually(lambda: master.epoch == 2)
        with pytest.raises(LeadershipLostError):
            await asyncio.to_thread(records.write, Put("jobs/y", b""))
        await master.services.close()

    run(body)


def test_epochs_rise_in_a_duel(zookeeper: PrivateZooKeeper) -> None:
    """Two masters whose sessions end again and again: no epoch is granted twice, each checkpoint id is used once."""

    async def body() -> None:
        seed = random.SystemRandom().randrange(1 << 32)
        print(f"seed {seed}")
        chance = random.Random(seed)
        history: list[tuple[str, int]] = []
        masters = [Master(zookeeper, "duel", history, name, SHORT_SESSION) for name in "ab"]
        for master in masters:
            await master.start()
        job, used = JobID("cd" * 16), []

        def take(master: Master, epoch: int) -> None:
            store = RecordedCheckpointRecovery(master.services.records(epoch)).of_job(job)
            number = store.next_checkpoint_id()
            store.use_checkpoint_id(number)
            store.add(number, f"chk-{number}-of-{master.name}")
            used.append(number)

        for _ in range(10):
            before = len(history)
            for master in masters:
                if (epoch := master.epoch) is not None:
                    try:
                        await asyncio.to_thread(take, master, epoch)
                    except RecoveryStoreError as error:
                        print(f"{master.name} lost epoch {epoch}: {error}")
            leading = [master for master in masters if master.epoch is not None]
            if leading:
                await chance.choice(leading).expire()
            await eventually(lambda: len(history) > before)  # noqa: B023
        epochs = [epoch for _, epoch in history]
        assert epochs == sorted(set(epochs)), f"seed {seed}: {history}"
        assert len(used) == len(set(used)) and used, f"seed {seed}: {used}"
        await asyncio.gather(*(master.services.close() for master in masters))

    run(body)


def test_only_members_of_the_cluster_change_nodes_of_the_creator(zookeeper: PrivateZooKeeper) -> None:
    guarded = settings(zookeeper, "creator", creator_only=True)
    with pytest.raises(ZooKeeperUnreachableError, match=r"acl: creator needs the secret"):
        ZooKeeperServices(guarded)

    async def body() -> None:
        master = Master(zookeeper, "creator", [], "a")
        master.services = ZooKeeperServices(guarded, "", b"secret")
        await master.lead()
        await master.services.election.publish(RESOURCE_MANAGER, leader(1))
        records = master.services.records(1)
        await asyncio.to_thread(records.write, Put("jobs/x", b"1"))
        stranger = ZooKeeperServices(guarded, "", b"another")
        await asyncio.to_thread(stranger.start)
        seen: list[LeaderInformation | None] = []
        stranger.leader(RESOURCE_MANAGER).start(seen.append)
        await eventually(lambda: seen == [leader(1)])
        from yarrow.runtime.ha.zookeeper_records import ZooKeeperRecords

        foreign = ZooKeeperRecords(stranger.client, 1, 1)
        with pytest.raises(RecordsError, match="another secret"):
            await asyncio.to_thread(foreign.read, "jobs/x")
        with pytest.raises(RecordsError, match="another secret"):
            await asyncio.to_thread(foreign.write, Put("jobs/y", b""))
        await stranger.close()
        await master.services.close_and_clean_up()

    run(body)


def test_a_quorum_that_does_not_answer_is_named(tmp_path: Path) -> None:
    nobody = ZooKeeperSettings(quorum="127.0.0.1:1", root="/test/nobody", connection_timeout=1.0)
    with pytest.raises(
        ZooKeeperUnreachableError, match=r"127\.0\.0\.1:1 \(high-availability\.zookeeper\.quorum\)"
    ):
        ZooKeeperServices(nobody).start()


def test_nodes_that_somebody_removed_are_made_again_and_epochs_go_on(zookeeper: PrivateZooKeeper) -> None:
    async def body() -> None:
        history: list[tuple[str, int]] = []
        master = Master(zookeeper, "removed", history, "a")
        await master.lead()
        await master.expire()
        await eventually(lambda: master.epoch == 2)
        admin = KazooClient(zookeeper.quorum)

        def remove() -> None:
            admin.start(DEADLINE)
            remove_at_once(admin, "/test/removed")
            admin.stop()
            admin.close()

        await asyncio.to_thread(remove)
        await eventually(lambda: len(master.revoked) == 2)
        await eventually(lambda: master.epoch == 3)
        await asyncio.to_thread(master.services.records(3).write, Put("a", b"1"))
        await master.services.close_and_clean_up()
        assert history == [("a", 1), ("a", 2), ("a", 3)]

    run(body)


def test_all_but_what_is_to_be_kept_goes_and_the_rest_with_the_session(
    zookeeper: PrivateZooKeeper, tmp_path: Path
) -> None:
    async def body() -> None:
        master = Master(zookeeper, "kept", [], "a")
        master.services.storage_directory = str(tmp_path / "ha")
        (tmp_path / "ha" / "blobs").mkdir(parents=True)
        await master.lead()
        records = master.services.records(1)
        await asyncio.to_thread(records.write, Put("results/a", b"1"), Put("jobs/b", b"2"))
        await master.services.election.stop()
        await master.services.remove_all_but(("results",))
        found = await asyncio.to_thread(lambda: (records.read("results/a"), records.children("jobs")))
        assert found == (b"1", ()) and not (tmp_path / "ha").exists()
        await master.services.close_and_clean_up()
        await asyncio.to_thread(assert_gone, zookeeper, "kept")

    run(body)


def test_epochs_go_on_with_one_who_only_stood_by_when_the_nodes_were_removed(
    zookeeper: PrivateZooKeeper,
) -> None:
    """Who has seen a leader of a later epoch would never hear one that began anew."""

    async def body() -> None:
        history: list[tuple[str, int]] = []
        first, second = (Master(zookeeper, "stood-by", history, name) for name in "ab")
        await first.start()
        for epoch in (1, 2):
            await eventually(lambda: first.epoch == epoch)  # noqa: B023
            await first.expire()
        await eventually(lambda: first.epoch == 3)
        admin = KazooClient(zookeeper.quorum)
        try:
            await asyncio.to_thread(admin.start, DEADLINE)
            # Stands before the second one, so that this does not lead while the first is gone.
            queue = "/test/stood-by/leader/candidates"
            await asyncio.to_thread(admin.create, f"{queue}/x-", b"", ephemeral=True, sequence=True)
            await second.start()
            await eventually(lambda: len(admin.get_children(queue)) == 3)
            await first.services.close()
            assert second.epoch is None
            await asyncio.to_thread(remove_at_once, admin, "/test/stood-by")
        finally:
            await asyncio.to_thread(admin.stop)
            admin.close()
        await eventually(lambda: second.epoch is not None)
        assert history[-1] == ("b", 4)
        await second.services.close_and_clean_up()

    run(body)


def test_nodes_below_one_that_nobody_may_change_are_used(zookeeper: PrivateZooKeeper) -> None:
    """As an administrator makes them: the node of the cluster is ours, the one above is not."""

    async def body() -> None:
        admin = KazooClient(zookeeper.quorum)
        try:
            await asyncio.to_thread(admin.start, DEADLINE)
            admin.ensure_path("/locked/ours")
            admin.set_acls("/locked", [make_acl("world", "anyone", read=True, admin=True)])
            master = Master(zookeeper, "", [], "a")
            master.services = ZooKeeperServices(
                ZooKeeperSettings(quorum=zookeeper.quorum, root="/locked/ours", session_timeout=SESSION)
            )
            await master.start()
            await eventually(lambda: master.epoch == 1)
            await master.services.close()
            outside = Master(zookeeper, "", [], "b")
            outside.services = ZooKeeperServices(
                ZooKeeperSettings(quorum=zookeeper.quorum, root="/locked/other", session_timeout=SESSION)
            )
            with pytest.raises(RecordsError, match=r"/locked/other/leader was refused by ZooKeeper.*may not"):
                await outside.start()
            await outside.services.close()
        finally:
            admin.set_acls("/locked", OPEN_ACL_UNSAFE)
            await asyncio.to_thread(admin.delete, "/locked", recursive=True)
            await asyncio.to_thread(admin.stop)
            admin.close()

    run(body)


def test_what_is_gone_already_is_no_error_when_all_is_removed(
    zookeeper: PrivateZooKeeper, tmp_path: Path
) -> None:
    async def body() -> None:
        master = Master(zookeeper, "gone", [], "a")
        master.services.storage_directory = str(tmp_path / "ha")
        (tmp_path / "ha" / "blobs").mkdir(parents=True)
        await asyncio.to_thread(master.services.start)
        await master.services.remove_all_but(("results",))
        assert not (tmp_path / "ha").exists(), "the folder goes all the same"
        await master.services.close_and_clean_up()

    run(body)
