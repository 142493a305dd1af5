"""LeaderConnection: tries again, follows the leader, obeys a refusal."""

from __future__ import annotations

from tests.unit.runtime.rpc.echo import ECHO, Echo, EchoGateway
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.timers import ManualTimers
from yarrow.runtime.rpc.in_process import InProcessNetwork, InProcessTransport, ScriptedFault
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import RegistrationRejection, RegistrationSuccess
from yarrow.runtime.rpc.registration import LeaderConnection, RegistrationSettings
from yarrow.runtime.rpc.service import RpcService


class Registering:
    """An endpoint that registers with an Echo by calling it."""

    def __init__(self) -> None:
        self.fault = ScriptedFault()
        self.service = RpcService([InProcessTransport(InProcessNetwork(self.fault))])
        self.clock = ManualClock()
        self.timers = ManualTimers(self.clock)
        self.endpoint = Echo("registering")
        self.leader = AnnouncedLeader()
        self.answer: RegistrationSuccess | RegistrationRejection = RegistrationSuccess(
            leader_id="x", heartbeat_interval_ms=1
        )
        self.seen: list[str] = []
        self.connection: LeaderConnection[EchoGateway] = LeaderConnection(
            self.endpoint,
            self.service,
            ECHO,
            self.leader,
            self._register,
            self.timers,
            RegistrationSettings(initial_pause=1, max_pause=4),
        )
        self.connection.on_registered = lambda gateway, success: self.seen.append("registered")
        self.connection.on_rejected = lambda reason: self.seen.append(reason)
        self.connection.on_lost = lambda: self.seen.append("lost")

    async def _register(self, gateway: EchoGateway) -> RegistrationSuccess | RegistrationRejection:
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
