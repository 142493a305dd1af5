"""LeaderConnection: tries again, follows the leader, obeys a refusal."""

from __future__ import annotations

import pytest

from tests.support.faulty_network import FaultyNetwork
from tests.support.job_graphs import Stage, linear_job
from tests.support.manual_timers import ManualTimers
from tests.support.scripted_fault import ScriptedFault
from tests.unit.runtime.rpc.echo import ECHO, Echo, EchoGateway
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.control_plane_settings import job_master_settings
from yarrow.container.supervisor.task_executor_settings import settings_of
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import FencingTokenError, YarrowError
from yarrow.runtime.common.ids import ResourceID, ResourceManagerID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity, TaskExecutorBootstrap
from yarrow.runtime.rpc.errors import InvalidMessageError, RemoteError
from yarrow.runtime.rpc.in_process import InProcessTransport
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import RegistrationRejection, RegistrationSuccess
from yarrow.runtime.rpc.registration import LeaderConnection, Registration, RegistrationSettings
from yarrow.runtime.rpc.service import AddressError, RpcService


class Registering:
    """An endpoint that registers with an Echo by calling it."""

    def __init__(self, max_pause: float = 4) -> None:
        self.fault = ScriptedFault()
        self.service = RpcService([InProcessTransport(FaultyNetwork(self.fault))])
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.endpoint = Echo("registering")
        self.leader = AnnouncedLeader()
        self.answer: RegistrationSuccess | RegistrationRejection = RegistrationSuccess(
            leader_id="x", heartbeat_interval_ms=1
        )
        self.error: YarrowError | None = None
        self.seen: list[str] = []
        self.connection: LeaderConnection[EchoGateway] = LeaderConnection(
            self.endpoint,
            self.service,
            ECHO,
            self.leader,
            Registration(
                register=self._register,
                on_registered=lambda gateway, success: self.seen.append("registered"),
                on_rejected=self.seen.append,
                on_lost=lambda: self.seen.append("lost"),
            ),
            self.timers,
            RegistrationSettings(initial_pause=1, max_pause=max_pause, error_delay=20, refused_delay=60),
        )

    async def _register(self, gateway: EchoGateway) -> RegistrationSuccess | RegistrationRejection:
        if self.error is not None:
            raise self.error
        await gateway.tick()
        return self.answer

    async def lead(self, token: str) -> Echo:
        """Serves a leader with that token under its own name, announced to nobody yet."""
        leader = Echo(f"leader-{token}", fencing_token=token)
        await leader.start()
        self.service.serve(ECHO, leader)
        return leader

    def announce(self, token: str) -> None:
        self.leader.announce(LeaderInformation(address=f"inproc://leader-{token}", leader_id=token))


def test_tries_again_with_growing_pauses_until_the_leader_answers() -> None:
    async def body() -> None:
        it = Registering()
        await it.endpoint.start()
        it.announce("a")
        it.connection.start()
        for pause in (1, 2, 4, 4):
            await settled()
            attempts = len(it.fault.seen)
            it.timers.advance(pause - 0.01)
            await settled()
            assert len(it.fault.seen) == attempts
            it.timers.advance(0.01)
        leader = await it.lead("a")
        await settled()
        it.timers.advance(4)
        await settled()
        assert it.seen == ["registered"]
        assert leader.ticks == 1
        assert it.timers.pending == 0
        await leader.stop()
        it.connection.stop()
        await it.endpoint.stop()

    run(body())


def test_silence_never_lasts_longer_than_an_error() -> None:
    async def body() -> None:
        it = Registering(max_pause=30)
        await it.endpoint.start()
        it.announce("a")
        it.connection.start()
        for pause in (1, 2, 4, 8, 16, 20, 20):
            await settled()
            attempts = len(it.fault.seen)
            it.timers.advance(pause)
            await settled()
            assert len(it.fault.seen) == attempts + 1, pause
        it.connection.stop()
        await it.endpoint.stop()

    run(body())


def test_registers_with_a_new_leader_and_tries_a_stale_one_in_vain() -> None:
    async def body() -> None:
        it = Registering()
        await it.endpoint.start()
        it.connection.start()
        first, second = await it.lead("a"), await it.lead("b")
        it.announce("a")
        await settled()
        it.leader.announce(None)
        assert it.connection.leader is None
        it.announce("b")
        await settled()
        assert it.seen == ["registered", "lost", "registered"]
        # A leader that was deposed without our knowing refuses the token.
        it.leader.announce(LeaderInformation(address="inproc://leader-a", leader_id="older"))
        await settled()
        assert (first.ticks, second.ticks) == (1, 1)
        assert it.connection.gateway is None
        it.connection.stop()
        assert it.timers.pending == 0
        for endpoint in (first, second, it.endpoint):
            await endpoint.stop()

    run(body())


def test_a_refusal_is_final_for_that_leader() -> None:
    async def body() -> None:
        it = Registering()
        await it.endpoint.start()
        leader = await it.lead("a")
        it.answer = RegistrationRejection(reason="unwanted")
        it.announce("a")
        it.connection.start()
        await settled()
        assert it.seen == ["unwanted"]
        assert it.timers.pending == 0
        it.connection.stop()
        await leader.stop()
        await it.endpoint.stop()

    run(body())


def test_a_leader_that_accepts_and_then_refuses_is_asked_again_after_growing_pauses() -> None:
    async def body() -> None:
        it = Registering()
        await it.endpoint.start()
        leader = await it.lead("a")
        it.announce("a")
        it.connection.start()
        await settled()
        for count, pause in enumerate((1, 2, 4, 4), 1):
            assert it.seen == ["registered", "lost"] * (count - 1) + ["registered"]
            it.connection.reconnect()
            it.connection.reconnect()
            assert it.timers.pending == 1
            it.timers.advance(pause - 0.01)
            await settled()
            assert leader.ticks == count
            it.timers.advance(0.01)
            await settled()
        # A registration that held is repeated at once, and the pauses begin anew.
        it.connection.confirm()
        it.connection.reconnect()
        await settled()
        assert leader.ticks == 6 and it.connection.gateway is not None
        it.connection.reconnect()
        it.timers.advance(1)
        await settled()
        assert leader.ticks == 7
        it.connection.reconnect()
        it.connection.stop()
        assert it.timers.pending == 0
        await leader.stop()
        await it.endpoint.stop()

    run(body())


@pytest.mark.parametrize(
    ("error", "pause"),
    [
        (FencingTokenError("it leads no longer"), 20),
        (InvalidMessageError("not what the gateway declares"), 20),
        (AddressError("the leader has no way to the address that registers"), 20),
        (RemoteError("the leader failed with a KeyError"), 60),
    ],
    ids=lambda value: type(value).__name__,
)
def test_after_an_error_comes_the_pause_of_its_kind(error: YarrowError, pause: float) -> None:
    async def body() -> None:
        it = Registering()
        await it.endpoint.start()
        leader = await it.lead("a")
        it.error = error
        it.announce("a")
        it.connection.start()
        await settled()
        it.error = None
        it.timers.advance(pause - 0.01)
        await settled()
        assert it.seen == []
        it.timers.advance(0.01)
        await settled()
        assert it.seen == ["registered"]
        it.connection.stop()
        await leader.stop()
        await it.endpoint.stop()

    run(body())


def test_both_sides_that_register_read_the_options() -> None:
    keys = ("initial-timeout", "max-timeout", "error-delay", "refused-registration-delay")
    values = {f"cluster.registration.{key}": f"{index + 1} s" for index, key in enumerate(keys)}
    expected = RegistrationSettings(1, 2, 3, 4)
    bootstrap = TaskExecutorBootstrap(
        application_id="application",
        resource_id=ResourceID("one"),
        resource_manager_address="",
        resource_manager_id=ResourceManagerID(""),
        host="localhost",
        bind_host="localhost",
        identity=PemIdentity(),
        data_secret=b"",
        configuration=values,
        log_directory="",
        working_directory="",
    )
    assert settings_of(bootstrap).registration == expected
    assert job_master_settings(Settings(values), linear_job(Stage(1))).registration == expected
    assert RegistrationSettings.of(Settings({})) == RegistrationSettings(0.1, 30, 10, 30), "Flink's"
