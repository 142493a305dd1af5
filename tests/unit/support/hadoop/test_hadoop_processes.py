"""Processes are known by number and start, containers by where they work; what is absent is named."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.support.hadoop import containers, jars, state, web
from tests.support.hadoop.__main__ import main
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.errors import HadoopError
from tests.support.hadoop.layout import Layout
from tests.support.hadoop.leftovers import Leftovers, Places
from tests.support.services import processes, system_packages
from tests.support.services.errors import MissingProgramError, ServiceError
from tests.support.services.processes import ProcessRecord
from yarrow.runtime.common.cache_folder import cache_folder

CONTAINER = "container_e03_1700000000000_0007_02_000011"
APPLICATION = "application_1700000000000_0007"


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[ProcessRecord]:
    """A process of nobody's that does nothing."""
    record = processes.start(["sleep", "600"], tmp_path / "log", dict(os.environ), tmp_path)
    yield record
    processes.stop([record], 5.0)


def test_started_process_lives_apart_from_the_caller(sleeper: ProcessRecord) -> None:
    assert processes.is_alive(sleeper)
    assert os.getsid(sleeper.pid) != os.getsid(0)


def test_number_that_was_given_to_another_process_is_left_alone(sleeper: ProcessRecord) -> None:
    former = replace(sleeper, started=sleeper.started - 1)
    assert not processes.is_alive(former)
    assert processes.send(former, signal.SIGKILL) is False
    processes.stop([former], 0.1)
    assert processes.is_alive(sleeper)


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    program = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "print('deaf', flush=True); time.sleep(600)"
    )
    log = tmp_path / "log"
    record = processes.start([sys.executable, "-c", program], log, dict(os.environ), tmp_path)
    while "deaf" not in log.read_text():
        assert processes.is_alive(record)
    processes.stop([record], 0.2)
    assert not processes.is_alive(record)


def test_stopped_process_lives_and_can_be_ended(sleeper: ProcessRecord) -> None:
    processes.send(sleeper, signal.SIGSTOP)
    while not processes.is_stopped(sleeper):
        assert processes.is_alive(sleeper)
    processes.stop([sleeper], 5.0)
    assert not processes.is_alive(sleeper)


def test_process_that_ended_and_was_not_reaped_does_not_live() -> None:
    with subprocess.Popen(["true"]) as child:
        while (record := processes.identify(child.pid)) is not None:
            assert record.pid == child.pid
        assert processes.identify(child.pid) is None


@pytest.mark.parametrize("by", ["folder", "environment"])
def test_container_is_found_by_its_folder_or_its_environment(tmp_path: Path, by: str) -> None:
    layout = Layout(tmp_path / "cluster")
    place = layout.local_dir("nodemanager1") / "usercache" / "me" / "appcache" / APPLICATION
    work = place / CONTAINER
    work.mkdir(parents=True)
    environment = {**os.environ, "LOCAL_DIRS": str(place), "CONTAINER_ID": CONTAINER}
    cwd, variables = (work, dict(os.environ)) if by == "folder" else (tmp_path, environment)
    record = processes.start(["sleep", "600"], tmp_path / "log", variables, cwd)
    try:
        # While a process is being executed, it shows no environment.
        while not Path(f"/proc/{record.pid}/environ").read_bytes():
            assert processes.is_alive(record)
        found = containers.processes(layout)
        assert [(one.record, one.application, one.container) for one in found] == [
            (record, APPLICATION, CONTAINER)
        ]
        assert containers.processes(Layout(tmp_path / "clust")) == []
    finally:
        processes.stop([record], 5.0)
    assert containers.processes(layout) == []


@pytest.mark.parametrize(
    ("place", "names"),
    [
        (f"/x/{APPLICATION}/{CONTAINER}/y", (APPLICATION, CONTAINER)),
        (f"/x/{CONTAINER}", (APPLICATION, CONTAINER)),
        ("container_1700000000000_0007_01_000001", (APPLICATION, "container_1700000000000_0007_01_000001")),
        (f"/x/{APPLICATION}/filecache", (APPLICATION, "")),
        ("/x/filecache", ("", "")),
    ],
)
def test_names_of_containers(place: str, names: tuple[str, str]) -> None:
    assert containers.names_in(place) == names


def test_state_is_read_as_it_was_written(tmp_path: Path) -> None:
    layout = Layout(tmp_path)
    assert state.load(layout) is None
    written = state.ClusterState(
        {"zookeeper.client": 1}, "/jars", "/java", {"zookeeper": ProcessRecord(2, 3)}
    )
    state.save(layout, written)
    assert state.load(layout) == written


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"processes": {"zookeeper": {"pid": 1}}}'])
def test_foreign_state_is_refused_with_its_path(tmp_path: Path, content: str) -> None:
    layout = Layout(tmp_path)
    layout.state.write_text(content)
    with pytest.raises(HadoopError, match=r"cluster\.json"):
        state.load(layout)


def test_without_a_cluster_the_command_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = ["--directory", str(tmp_path / "none")]
    assert main(["status", *place]) == 1
    assert main(["env", *place]) == 1
    assert "scripts/hadoop up" in capsys.readouterr().err
    assert main(["kill", "namenode", *place]) == 1
    assert main(["down", *place]) == 0
    assert list(tmp_path.iterdir()) == []


def test_missing_program_is_named_with_its_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MissingProgramError, match="package maven"):
        system_packages.program("mvn", "maven")


def test_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.touch(mode=0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    for version, refused in (("1.8.0_402", True), ("11.0.2", True), ("17.0.15", False), ("25", False)):
        (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
        if refused:
            with pytest.raises(MissingProgramError, match="openjdk-17"):
                system_packages.java_home()
        else:
            assert system_packages.java_home() == tmp_path


@pytest.fixture
def maven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A `mvn` on PATH that counts its calls in the returned file and brings one jar."""
    calls = tmp_path / "calls"
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    program.write_text(
        f'#!/bin/sh\necho "$@" >>"{calls}"\nfor word in "$@"; do last="$word"; done\n'
        'mkdir -p "${last#*=}" && echo jar >"${last#*=}/hadoop-common-1.jar"\n'
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return calls


def test_jars_are_fetched_once_for_each_pom(maven: Path, tmp_path: Path) -> None:
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    folder = jars.jar_folder(pom)
    assert jars.jar_folder(pom) == folder
    assert [path.name for path in folder.iterdir()] == ["hadoop-common-1.jar"]
    assert len(maven.read_text().splitlines()) == 1
    pom.write_text("<project>2</project>")
    assert jars.jar_folder(pom) != folder
    assert len(maven.read_text().splitlines()) == 2


def test_failed_fetch_leaves_nothing(maven: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\necho 'no repository'\nexit 1\n")
    pom = tmp_path / "pom.xml"
    pom.write_text("<project/>")
    with pytest.raises(ServiceError, match="no repository"):
        jars.jar_folder(pom)
    assert list(cache_folder().iterdir()) == []


def test_daemon_names_are_checked(tmp_path: Path) -> None:
    with pytest.raises(HadoopError, match="nodemanager2"):
        HadoopCluster.at(tmp_path).start("nodemanager3")


def test_leftovers_are_what_came_since() -> None:
    before = Leftovers(applications=["a"], files=["/x"])
    now = Leftovers(applications=["a", "b"], files=["/x"])
    assert now.since(before) == Leftovers(["b"], [], [], [])
    assert not before.since(now)
    assert "b" in str(now) and str(Leftovers()) == "nothing"


def test_kept_folders_are_whole_names() -> None:
    places = Places(kept=("/tmp/logs",))
    assert places.is_kept("/tmp/logs/me/x") and places.is_kept("/tmp/logs")
    assert not places.is_kept("/tmp/logs2/x")
    assert places.is_kept("/user/me/.skein")
    assert not places.is_kept("/user/me/.skein/application_1_0001")


def test_kept_folders_are_not_looked_into(monkeypatch: pytest.MonkeyPatch) -> None:
    def entry(name: str, kind: str) -> dict[str, str]:
        return {"pathSuffix": name, "type": kind}

    folders = {
        "/tmp": [entry("logs", "DIRECTORY"), entry("logs2", "DIRECTORY"), entry("a", "FILE")],
        "/tmp/logs2": [entry("b", "FILE")],
    }

    def get(url: str) -> object:
        # A folder that is not in the table raises KeyError.
        return {"FileStatuses": {"FileStatus": folders[urlsplit(url).path.removeprefix("/webhdfs/v1")]}}

    monkeypatch.setattr(web, "get", get)
    found = web.files_below(1, "/tmp", "me", Places(kept=("/tmp/logs",)).is_below_kept)
    assert found == ["/tmp/logs", "/tmp/logs2/b", "/tmp/a"]
