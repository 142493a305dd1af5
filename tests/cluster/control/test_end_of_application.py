"""The end of an application with high availability: YARN is told before that is forgotten, and nothing runs twice."""

from __future__ import annotations

import asyncio
import urllib.error
from collections.abc import Collection
from dataclasses import replace
from http import HTTPStatus
from pathlib import Path

import msgspec
import pytest

from tests.cluster.control.test_running_master import Application
from tests.unit.am.yarn.containers_of_yarn import ContainersOfYarn
from tests.yarn.waiting import GRACE, until
from yarrow.am.yarn import running_master
from yarrow.am.yarn.application_master import tell_end
from yarrow.am.yarn.modes.application_end import ApplicationEnd
from yarrow.am.yarn.modes.end_file import EndFile
from yarrow.am.yarn.modes.recorded_end import END_RECORD, record_end, recorded_end
from yarrow.runtime.ha.none import NoHighAvailability
from yarrow.runtime.ha.records import Put, RecordsInMemory
from yarrow.runtime.ha.services import HighAvailabilityServices
from yarrow.runtime.yarn.application import DeploymentMode
from yarrow.runtime.yarn.gateways import EndUnknownError, FinalStatus, YarnError

END = ApplicationEnd(FinalStatus.KILLED, "Job 'a' was cancelled.")


class Surviving(NoHighAvailability):
    """What outlives an attempt, and what was done to it."""

    is_highly_available = True

    def __init__(self, storage: Path) -> None:
        super().__init__()
        self.storage_directory = str(storage)
        self.done: list[object] = []

    def present(self, path: str) -> bytes | None:
        return self._records.read(path)

    async def remove_all_but(self, kept: Collection[str]) -> None:
        self.done.append(tuple(kept))

    async def close(self) -> None:
        self.done.append("closed")

    async def close_and_clean_up(self) -> None:
        self.done.append("removed")


def application(
    folder: Path, mode: DeploymentMode, survives: Surviving, monkeypatch: pytest.MonkeyPatch, **more: str
) -> Application:
    made = Application(
        folder,
        mode,
        configuration={
            "high-availability.type": "zookeeper",
            "high-availability.zookeeper.quorum": "127.0.0.1:1",
            "high-availability.storageDir": str(folder / "ha"),
            **more,
        },
    )

    async def these() -> HighAvailabilityServices:
        return survives

    monkeypatch.setattr(made.master, "_high_availability", these)
    return made


def leave_an_unfinished_job(session: Application, survives: Surviving) -> None:
    """Stores a job that no master can read, behind the look of this leadership at the jobs of earlier ones.

    REST is there before the leadership. The Dispatcher answers once it knows the jobs of earlier leaderships, and would
    try to take over a job that had been stored before.
    """

    def dispatcher_answers() -> bool:
        try:
            session.ask("GET", "/jobs")
        except urllib.error.HTTPError as refused:
            refused.close()
            assert refused.code == HTTPStatus.SERVICE_UNAVAILABLE
            return False
        return True

    until(dispatcher_answers, GRACE, "an answer of the Dispatcher")
    survives.records(1).write(Put("jobs/" + "ab" * 16, b"?"))


@pytest.mark.cluster
def test_how_an_application_ended_is_stored_until_yarn_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survives = Surviving(tmp_path / "ha")
    session = application(tmp_path, DeploymentMode.SESSION, survives, monkeypatch)

    def stop() -> None:
        # Nobody will lead under the id of this application again.
        leave_an_unfinished_job(session, survives)
        session.ask("DELETE", "/cluster")

    async def body() -> None:
        end = await session.run(stop)
        assert end is not None
        assert recorded_end(survives.records(1)) == end
        assert survives.done == [("results",)], "the session lasts"
        await session.master.forget()

    asyncio.run(body())
    assert survives.done == [("results",), "removed"]


@pytest.mark.cluster
def test_jobs_of_a_cluster_with_a_name_of_its_own_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survives = Surviving(tmp_path / "ha")
    session = application(
        tmp_path,
        DeploymentMode.SESSION,
        survives,
        monkeypatch,
        **{"high-availability.cluster-id": "mine"},
    )

    def stop() -> None:
        leave_an_unfinished_job(session, survives)
        session.ask("DELETE", "/cluster")

    async def body() -> None:
        await session.run(stop)
        await session.master.forget()

    asyncio.run(body())
    assert survives.done == ["closed"]


@pytest.mark.cluster
def test_an_attempt_after_the_end_only_reports_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    survives = Surviving(tmp_path / "ha")
    record_end(survives._records.next_leadership(), END)
    program = application(tmp_path, DeploymentMode.APPLICATION, survives, monkeypatch)
    program.master._folder = replace(program.master._folder, attempt=2)
    assert asyncio.run(program.run()) == END
    assert program.yarn.environments == [], "no job has run"
    assert not (program.logs / "jobmanager.out").exists(), "nor has the program"


@pytest.mark.cluster
def test_without_high_availability_an_attempt_after_the_end_only_reports_it_too(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    folder = tmp_path / "hdfs"

    def attempt(number: int, name: str, *arguments: str) -> Application:
        made = Application(tmp_path / name, DeploymentMode.APPLICATION, *arguments)
        made.master._folder = replace(made.master._folder, attempt=number)
        made.master._description = msgspec.structs.replace(
            made.description, max_attempts=3, applications_folder=str(folder)
        )
        return made

    first = attempt(1, "first", "fail")
    end = asyncio.run(first.run())
    assert end is not None and end.diagnostics.endswith("RuntimeError: my own")
    assert EndFile(str(folder / "application_1_0001")).read() == end
    second = attempt(2, "second")
    assert asyncio.run(second.run()) == end
    assert second.yarn.environments == [], "no job has run"
    assert not (second.logs / "jobmanager.out").exists(), "nor has the program"


@pytest.mark.cluster
def test_where_no_attempt_can_follow_nothing_is_written(tmp_path: Path) -> None:
    session = Application(tmp_path, DeploymentMode.SESSION)
    session.master._description = msgspec.structs.replace(
        session.description, applications_folder=str(tmp_path / "hdfs")
    )
    end = asyncio.run(session.run(lambda: session.ask("DELETE", "/cluster")))
    assert end is not None and not (tmp_path / "hdfs").exists()


@pytest.mark.cluster
def test_what_is_stored_is_removed_though_the_cluster_hangs_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    survives = Surviving(tmp_path / "ha")
    session = application(tmp_path, DeploymentMode.SESSION, survives, monkeypatch)
    monkeypatch.setattr(running_master, "_STOP_LIMIT", 0.5)

    async def hangs() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(session.master._driver, "terminate", hangs)

    async def body() -> None:
        await session.run(lambda: session.ask("DELETE", "/cluster"))
        await session.master.forget()
        assert session.master._plane is not None
        await session.master._plane.rpc.stop()

    asyncio.run(body())
    assert survives.done == [("results",), "removed"]


def test_an_end_that_does_not_decode_is_none() -> None:
    records = RecordsInMemory().next_leadership()
    assert recorded_end(records) is None
    records.write(Put(END_RECORD, b"?"))
    assert recorded_end(records) is None


class Deaf(ContainersOfYarn):
    """Does not take the first answers."""

    def __init__(self, *failures: YarnError) -> None:
        super().__init__()
        self.failures = list(failures)

    def finish(self, status: FinalStatus, diagnostics: str) -> None:
        if self.failures:
            raise self.failures.pop(0)
        super().finish(status, diagnostics)


def test_yarn_is_told_until_it_hears() -> None:
    yarn = Deaf(YarnError("one"), YarnError("two"))
    assert asyncio.run(tell_end(yarn, END, (0.0, 0.0)))
    assert yarn.ends == [(END.status, END.diagnostics)]
    with pytest.raises(YarnError, match="three"):
        asyncio.run(tell_end(Deaf(YarnError("one"), YarnError("two"), YarnError("three")), END, (0.0, 0.0)))


def test_that_yarn_may_not_know_is_known() -> None:
    gone = Deaf(*(EndUnknownError("no answer") for _ in range(5)))
    assert not asyncio.run(tell_end(gone, END, (0.0, 0.0, 0.0)))
    assert len(gone.failures) == 3
    assert asyncio.run(tell_end(Deaf(EndUnknownError("no answer")), END, (0.0,)))
