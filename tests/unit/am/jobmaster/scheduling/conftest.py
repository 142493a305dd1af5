"""Whatever a test of the scheduler does, a dump of it replays."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.unit.am.jobmaster.scheduling.scheduling import Scheduling
from yarrow.am.jobmaster.scheduling.scheduler_actions import Actions


@pytest.fixture(autouse=True)
def replays(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Replays each job of a test at its end."""
    made: list[Scheduling] = []
    start = Scheduling.start

    def started(self: Scheduling) -> Actions:
        made.append(self)
        return start(self)

    monkeypatch.setattr(Scheduling, "start", started)
    yield
    for job in made:
        if job.is_replayed:
            job.replay()
