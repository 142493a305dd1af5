"""Election and records on an ensemble of three ZooKeeper servers: one dies, the ensemble's leader dies, and one is cut
off from the others with a leading master. Servers are real, the network between them is relays."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.free_ports import free_port
from tests.yarn.private_zookeeper import START, PrivateZooKeeper
from tests.yarn.test_zookeeper_election import Master, eventually, leader, run
from tests.yarn.waiting import until
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.ha.records import LeadershipLostError, Put, RecordsError
from yarrow.runtime.ha.services import RESOURCE_MANAGER
from yarrow.runtime.ha.settings import ZooKeeperSettings
from yarrow.runtime.ha.zookeeper_services import ZooKeeperServices
from yarrow.runtime.rpc.leader import LeaderInformation
from yarrow.testing.tcp_relay import TcpRelay

SERVERS = (1, 2, 3)
#: Seconds of a session that is to outlast an election among the servers, on a busy machine.
LONG_SESSION = 20.0
#: Of one that is to outlast a server's silence, and an election should it be the one that leads.
STILL_SESSION = 45.0
#: And of one that ends before the server that is cut off has noticed it.
SHORT_SESSION = 2.0
_clock = SystemClock()


class Member(PrivateZooKeeper):
    """One server of the ensemble."""

    def __init__(self, folder: Path, number: int, peers: str) -> None:
        """`peers`: lines that say where this one finds the others."""
        super().__init__(folder)
        (folder / "data" / "myid").write_text(f"{number}\n")
        # A server that is cut off notices after 16 ticks, which is later than a short session ends.
        with (folder / "zoo.cfg").open("a") as file:
            file.write(f"initLimit=40\nsyncLimit=16\ncnxTimeout=1000\n{peers}")

    @property
    def mode(self) -> str:
        """`leader`, `follower`, `read-only`; "" while it serves nobody."""
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10.0) as connection:
                connection.sendall(b"srvr")
                answer = b"".join(iter(lambda: connection.recv(4096), b"")).decode()
        except OSError:
            return ""
        return next((line[6:] for line in answer.splitlines() if line.startswith("Mode: ")), "")


class Ensemble:
    """Three servers; the third hears the others, and they it, by relays alone."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        real = {number: (free_port(), free_port()) for number in SERVERS}
        self._relays: list[TcpRelay] = []

        def relayed(number: int) -> list[int]:
            made = [opened.enter_context(TcpRelay(("127.0.0.1", port))) for port in real[number]]
            self._relays += made
            return [int(relay.address.rpartition(":")[2]) for relay in made]

        def seen_by(viewer: int) -> str:
            lines = []
            for number in SERVERS:
                apart = viewer != number and 3 in (viewer, number)
                quorum, election = relayed(number) if apart else real[number]
                lines.append(f"server.{number}=127.0.0.1:{quorum}:{election}\n")
            return "".join(lines)

        self.members = {
            number: Member(folder / f"server-{number}", number, seen_by(number)) for number in SERVERS
        }
        for member in self.members.values():
            opened.callback(member.stop)
        with ThreadPoolExecutor(len(SERVERS)) as pool:
            list(pool.map(Member.start, self.members.values()))
        self.until_whole()

    @property
    def quorum(self) -> str:
        return ",".join(member.quorum for member in self.members.values())

    def until_whole(self) -> None:
        until(
            lambda: sorted(one.mode for one in self.members.values()) == ["follower", "follower", "leader"],
            START,
            "one server leads, two follow",
        )

    def leading(self) -> int:
        """The number of the server that leads the others."""
        return next(number for number, member in self.members.items() if member.mode == "leader")

    def cut_off_third(self) -> None:
        for relay in self._relays:
            relay.cut()

    def heal(self) -> None:
        for relay in self._relays:
            relay.heal()
        self.until_whole()


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    with ExitStack() as opened, pytest.MonkeyPatch.context() as patch:
        # The worst case: a server without the others goes on to answer those who ask for no more than reads.
        patch.setenv("JDK_JAVA_OPTIONS", "-Dreadonlymode.enabled=true")
        yield Ensemble(tmp_path_factory.mktemp("ensemble"), opened)


class WatchedMaster(Master):
    """Knows as well when it was granted leadership."""

    def __init__(
        self, quorum: str, cluster: str, session: float, history: list[tuple[str, int]], name: str
    ) -> None:
        self.services = ZooKeeperServices(
            ZooKeeperSettings(
                quorum=quorum,
                root=f"/test/{cluster}",
                session_timeout=session,
                retry_wait=0.5,
                max_retries=60,
            )
        )
        self.history, self.name = history, name
        self.epoch: int | None = None
        self.revoked: list[tuple[str, float]] = []
        self.granted: list[float] = []
        #: Called at each grant.
        self.on_granted: Callable[[], None] = lambda: None

    def grant_leadership(self, epoch: int) -> None:
        self.granted.append(_clock.monotonic())
        self.on_granted()
        super().grant_leadership(epoch)


def port_of_server(master: Master) -> int | None:
    """Where the master's session is at present; None between two servers."""
    if not master.services.client.is_connected:
        return None
    try:
        return int(master.services.client._client._connection._socket.getpeername()[1])
    except (AttributeError, OSError):
        return None


async def write(master: Master, epoch: int, *names: str) -> None:
    records = master.services.records(epoch)
    await asyncio.to_thread(records.write, *(Put(f"jobs/{name}", name.encode()) for name in names))


def test_a_server_dies_and_then_the_one_that_leads(ensemble: Ensemble) -> None:
    """Sessions move to the servers that are left: no leadership ends, no record is lost."""

    async def body() -> None:
        history: list[tuple[str, int]] = []
        first, second = (
            WatchedMaster(ensemble.quorum, "deaths", LONG_SESSION, history, name) for name in "ab"
        )
        await first.start()
        await eventually(lambda: first.epoch == 1)
        await second.start()
        await first.services.election.publish(RESOURCE_MANAGER, leader(1))
        await write(first, 1, "before")
        leading = await asyncio.to_thread(ensemble.leading)
        follower = next(number for number in SERVERS if number != leading)
        for number in (follower, leading):
            victim = ensemble.members[number]
            await asyncio.to_thread(victim.stop)
            await write(first, 1, f"without-{number}")
            assert first.services.election.leads()
            await asyncio.to_thread(victim.start)
            await asyncio.to_thread(ensemble.until_whole)
        names = await asyncio.to_thread(second.services.client.children, "jobs", LONG_SESSION)
        assert sorted(names) == sorted(["before", f"without-{follower}", f"without-{leading}"])
        assert (history, first.revoked) == ([("a", 1)], [])
        await first.services.close()
        await eventually(lambda: second.epoch == 2)
        await second.services.close_and_clean_up()

    run(body)


def test_a_server_stands_still_and_its_client_goes_to_another(ensemble: Ensemble) -> None:
    """It takes connections, and answers nobody: who leads notices, and leads on by another server."""

    async def body() -> None:
        history: list[tuple[str, int]] = []
        master = WatchedMaster(ensemble.quorum, "still", STILL_SESSION, history, "a")
        await master.start()
        await eventually(lambda: master.epoch == 1)
        port = port_of_server(master)
        victim = next(one for one in ensemble.members.values() if one.port == port)
        victim.signal(signal.SIGSTOP)
        try:
            await eventually(lambda: port_of_server(master) not in (None, port))
            await write(master, 1, "meanwhile")
        finally:
            victim.signal(signal.SIGCONT)
        assert (history, master.revoked) == ([("a", 1)], [])
        await asyncio.to_thread(ensemble.until_whole)
        await master.services.close_and_clean_up()

    run(body)


def test_who_is_cut_off_with_its_server_leads_no_more(ensemble: Ensemble) -> None:
    """The server of the minority answers reads for longer than the session lasts: its master must not believe it."""

    async def body() -> None:
        history: list[tuple[str, int]] = []
        apart = WatchedMaster(ensemble.members[3].quorum, "minority", SHORT_SESSION, history, "apart")
        others = ",".join(ensemble.members[number].quorum for number in (1, 2))
        among = WatchedMaster(others, "minority", SHORT_SESSION, history, "among")
        await apart.start()
        await eventually(lambda: apart.epoch == 1)
        await among.start()
        await apart.services.election.publish(RESOURCE_MANAGER, leader(1))
        records = apart.services.records(1)
        await write(apart, 1, "before")
        seen: list[LeaderInformation | None] = []
        apart.services.leader(RESOURCE_MANAGER).start(seen.append)
        await eventually(lambda: seen == [leader(1)])
        led_by_two: list[bool] = []
        among.on_granted = lambda: led_by_two.append(apart.services.election.leads())
        await asyncio.to_thread(ensemble.cut_off_third)
        try:
            await eventually(lambda: among.epoch is not None)
            assert led_by_two == [False]
            assert len(apart.revoked) == 1 and apart.revoked[0][1] < among.granted[0]
            with pytest.raises(LeadershipLostError):
                await apart.services.election.publish(RESOURCE_MANAGER, leader(1))
            epoch = among.epoch
            assert epoch is not None
            await write(among, epoch, "after")
            await among.services.election.publish(RESOURCE_MANAGER, leader(epoch, "b"))
            assert apart.epoch is None, "it was elected by a server without the others"
        finally:
            await asyncio.to_thread(ensemble.heal)
        # What the former leader still had to write comes too late, and it hears who leads now.
        with pytest.raises(RecordsError):
            await asyncio.to_thread(records.write, Put("jobs/late", b""))
        await eventually(lambda: bool(seen) and seen[-1] == leader(epoch, "b"))
        names = await asyncio.to_thread(among.services.records(epoch).children, "jobs")
        assert names == ("after", "before")
        epochs = [number for _, number in history]
        assert epochs == sorted(set(epochs)), history
        await apart.services.close()
        await among.services.close_and_clean_up()

    run(body)
