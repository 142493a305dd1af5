"""ZooKeeper that is lost, slow, or cut off from the master alone: who is not sure to lead commits nothing, nobody
restarts without need, and the job's output is that without faults."""

from __future__ import annotations

import os
import random
import re
from collections import Counter
from functools import partial
from threading import Event

import pytest

from tests.yarn.faults.sessions import SESSION_TIMEOUT, FaultSession, SteadyJob
from tests.yarn.waiting import GRACE, until
from yarrow.runtime.common.clock import SystemClock
from yarrow.testing.tcp_relay import Direction, TcpRelay

GAVE_UP = "this master leads no more"
#: Seconds; an hour by YARROW_FLAPPING=3600.
FLAPPING = float(os.environ.get("YARROW_FLAPPING", "120"))
SUSPENDED = "the connection to ZooKeeper is suspended"


class Absence:
    """Until ZooKeeper is back the leader gives up, commits nothing, and then leads again by another epoch."""

    def __init__(self, session: FaultSession, job: SteadyJob) -> None:
        self.session, self.job = session, job
        self.epoch, self.last = session.epoch(), job.last_checkpoint()
        self.master, self.attempts = session.master(), session.attempts()
        self._said = session.said(GAVE_UP)

    def until_given_up(self) -> None:
        until(lambda: self.session.said(GAVE_UP) > self._said, GRACE, "the leader gives up")
        self.pointers = self.session.pointers(self.job.job_id)

    def check_after(self) -> None:
        """After it is back."""
        until(
            lambda: self.session.epoch() > self.epoch and self.job.runs(),
            GRACE,
            "the job runs under a leader",
        )
        assert self.job.restored_from() >= max(self.pointers), "nothing that was completed is lost"
        assert self.session.master().pid == self.master.pid and self.session.attempts() == self.attempts
        self.job.until_checkpoints()
        written_once(self.session, self.job)
        self.job.finish()
        until(lambda: self.session.znodes() == [], GRACE, "nothing of the job is left in ZooKeeper")


def test_22_suspended_and_back_in_time(session: FaultSession, job: SteadyJob, relay: TcpRelay) -> None:
    epoch, attempts, said = session.epoch(), job.attempts(), session.said(SUSPENDED)
    for _ in range(2):
        relay.cut()
        relay.reset()
        said += 1
        until(partial(has_said, session, SUSPENDED, said), GRACE, "the master has noticed")
        relay.heal()
        # Ids of checkpoints go on being given out, and pointers stored.
        job.until_checkpoints()
    assert session.epoch() == epoch
    assert job.attempts() == attempts and job.restored_from() == 0
    job.finish()


def written_once(session: FaultSession, job: SteadyJob) -> None:
    """By the NameNode's own record: no id of a checkpoint is used twice, by whomever."""
    record = (session.hadoop.directory / "logs" / "namenode.log").read_text("utf-8", errors="replace")
    written = re.findall(rf"cmd=rename\tsrc=\S+\tdst=\S*/{job.job_id}/chk-(\d+)/_metadata\t", record)
    assert written and len(written) == len(set(written)), Counter(written).most_common(3)


def has_said(session: FaultSession, text: str, times: int) -> bool:
    return session.said(text) >= times


def test_21_the_session_of_the_leader_expires(session: FaultSession, job: SteadyJob, relay: TcpRelay) -> None:
    absence = Absence(session, job)
    relay.cut([absence.master.pid])
    absence.until_given_up()
    until(lambda: session.nodes.candidates() == [], GRACE, "ZooKeeper ends the session")
    assert session.pointers(job.job_id) == absence.pointers
    assert "jobs/" in "".join(session.znodes()), "who leads no more removes nothing"
    relay.heal()
    absence.check_after()


@pytest.mark.parametrize(
    "direction",
    [pytest.param(Direction.TO_SERVER, marks=pytest.mark.soak), Direction.TO_CLIENT],
    ids=["requests", "answers"],
)
def test_24_the_master_alone_is_cut_off_one_way(
    session: FaultSession, job: SteadyJob, relay: TcpRelay, direction: Direction
) -> None:
    absence = Absence(session, job)
    assert len(relay.connected_pids()) > 1, "TaskExecutors stay connected"
    relay.cut([absence.master.pid], direction)
    absence.until_given_up()
    completed = absence.pointers
    # So long that one who went on would have completed several.
    Event().wait(3.0)
    assert session.pointers(job.job_id) == completed
    relay.heal()
    absence.check_after()


@pytest.mark.soak
def test_23_zookeeper_is_away_for_a_minute(session: FaultSession, job: SteadyJob) -> None:
    absence = Absence(session, job)
    session.hadoop.kill("zookeeper")
    until(lambda: session.said(GAVE_UP) > 0, GRACE, "the leader gives up")
    Event().wait(60.0)
    session.hadoop.start("zookeeper")
    session.hadoop.wait_until_ready("zookeeper")
    # What ZooKeeper had when it went cannot be read before the master goes on: at least what was seen complete.
    absence.pointers = {absence.last: ""}
    absence.check_after()


@pytest.mark.soak
def test_25_leadership_flaps(session: FaultSession, job: SteadyJob, relay: TcpRelay) -> None:
    generator, clock = random.Random(25), SystemClock()
    deadline = clock.monotonic() + FLAPPING
    epochs, checkpoints = [session.epoch()], [job.last_checkpoint()]
    while clock.monotonic() < deadline:
        said = session.said(GAVE_UP)
        relay.cut(direction=generator.choice([Direction.BOTH, Direction.TO_SERVER, Direction.TO_CLIENT]))
        Event().wait(generator.uniform(0.5, 2 * SESSION_TIMEOUT))
        relay.heal()
        given_up = session.said(GAVE_UP) > said
        job.until_running()
        job.until_checkpoints(1)
        epochs.append(session.epoch())
        checkpoints.append(job.last_checkpoint())
        assert not given_up or epochs[-1] > epochs[-2]
    assert epochs == sorted(epochs) and len(set(epochs)) > 2
    assert checkpoints == sorted(set(checkpoints)), "no id twice"
    written_once(session, job)
    job.finish()
