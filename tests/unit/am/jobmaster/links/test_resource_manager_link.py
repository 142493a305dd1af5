"""ResourceManagerLink: one that takes the registration and refuses the requirements is asked again after pauses."""

from __future__ import annotations

from typing import Any, cast

from tests.support.job_graphs import Stage, linear_job
from tests.support.manual_timers import ManualTimers
from tests.unit.runtime.rpc.echo import Echo
from tests.unit.runtime.rpc.loops import run, settled
from yarrow.am.control_plane_settings import job_master_settings
from yarrow.am.jobmaster.links.resource_manager_link import ResourceManagerLink, ResourceManagerServices
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.common.errors import FencingTokenError
from yarrow.runtime.common.ids import JobMasterID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.leader import AnnouncedLeader, LeaderInformation
from yarrow.runtime.rpc.messages import (
    Acknowledge,
    JobMasterRegistration,
    RegistrationSuccess,
    ResourceRequirements,
)
from yarrow.runtime.rpc.service import RpcService


class Forgetful:
    """A ResourceManager, and the service that reaches it: it takes registrations, and knows nobody afterwards."""

    def __init__(self) -> None:
        self.registrations = 0
        self.knows = False
        self.declared: list[int] = []

    def connect(self, *arguments: Any) -> Forgetful:
        return self

    async def register_job_master(self, registration: JobMasterRegistration) -> RegistrationSuccess:
        self.registrations += 1
        return RegistrationSuccess(leader_id="one", heartbeat_interval_ms=1000)

    async def declare_required_resources(
        self, job_master_id: JobMasterID, requirements: ResourceRequirements
    ) -> Acknowledge:
        if not self.knows:
            raise FencingTokenError("this job is not registered")
        self.declared.append(sum(each.number_of_slots for each in requirements.requirements))
        return Acknowledge()


def test_requirements_that_are_refused_again_and_again_are_declared_after_pauses() -> None:
    async def body() -> None:
        owner, clock, leader, manager = Echo("job master"), ManualClock(), AnnouncedLeader(), Forgetful()
        timers = ManualTimers(clock)
        await owner.start()
        job = linear_job(Stage(1))
        settings = Settings({"cluster.registration.initial-timeout": "1 s"})
        link = ResourceManagerLink(
            owner,
            job,
            JobMasterID("m"),
            ResourceManagerServices(cast(RpcService, manager), leader, clock, timers),
            job_master_settings(settings, job),
            on_rejected=lambda reason: None,
        )
        link.declare(3)
        link.start("inproc://job master")
        leader.announce(LeaderInformation(address="inproc://one", leader_id="one"))
        for attempts, pause in ((1, 1), (2, 2), (3, 4)):
            await settled()
            assert manager.registrations == attempts and timers.pending == 1
            timers.advance(pause)
        manager.knows = True
        await settled()
        assert manager.declared == [3] and link.is_registered and timers.pending == 0
        # What worked and is forgotten now is repeated at once, and slowly from then on.
        manager.knows = False
        link.declare(4)
        await settled()
        assert manager.registrations == 5 and timers.pending == 1
        manager.knows = True
        timers.advance(1)
        await settled()
        assert manager.declared == [3, 4]
        link.stop()
        await owner.stop()

    run(body())
