"""Which application a name or an id means where some have ended, as a ResourceManager tells over real HTTP."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from tests.unit.runtime.yarn.test_hadoop_configuration import write
from tests.unit.runtime.yarn.test_resource_manager_web import APPLICATION, Answers, address
from yarrow.cli.application_command import end_if_told
from yarrow.cli.session_command import attach
from yarrow.client.errors import CommandError
from yarrow.client.yarn.application_files import ApplicationFiles, SessionProperties
from yarrow.client.yarn.applications import application_of, end_sentence, end_text, present_address
from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    FinalStatus,
    YarnError,
    YarnState,
)

__all__ = ["address"]
ENDED, RUNNING, OTHERS = (f"application_1700000000000_000{number}" for number in (1, 2, 3))
FAILED_MASTER = (
    f"Application {ENDED} failed 2 times due to AM Container for appattempt_1700000000000_0001_000002 exited with "
    " exitCode: 1\nFailing this attempt.Diagnostics: [2026-11-01 10:00:00.000]Exception from container-launch.\n"
    "Container id: container_1700000000000_0001_02_000001\nExit code: 1\n\n"
    "org.apache.hadoop.util.Shell$ExitCodeException: \n\tat org.apache.hadoop.util.Shell.run(Shell.java:1009)\n"
    "For more detailed output, check the application tracking page.\n. Failing the application."
)
FAILED_JOB = (
    'Traceback (most recent call last):\n  File "job.py", line 3, in divide\n    return 1 // number\n'
    "           ^^^^^^^^^^^\nZeroDivisionError: integer division or modulo by zero\n\nJob 'broken' (ab) failed."
)


@pytest.fixture
def config(address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Settings]:
    """Hadoop's folder names a ResourceManager that knows two applications."""
    write(tmp_path, "core-site.xml", {"fs.defaultFS": "hdfs://127.0.0.1:1"})
    write(tmp_path, "yarn-site.xml", {"yarn.resourcemanager.webapp.address": address.partition("//")[2]})
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    ended = {"state": "FAILED", "finalStatus": "FAILED", "diagnostics": FAILED_MASTER}
    tell(ENDED, **ended)
    tell(RUNNING)
    yield Settings({"yarn.properties-file.location": str(tmp_path / "files")})


def tell(application_id: str, **more: str) -> None:
    """From now on the ResourceManager says so."""
    found = {"app": {**APPLICATION, "id": application_id, "name": "reports", **more}}
    Answers.by_path[f"/ws/v1/cluster/apps/{application_id}"] = (200, json.dumps(found))


def keep(config: Settings, *application_ids: str, rest_address: str = "") -> ApplicationFiles:
    files = ApplicationFiles.of(config)
    for application_id in application_ids:
        files.write_secrets(
            ClientSecrets(
                application_id=application_id,
                name="reports",
                rest_token="t",
                skein_certificate=b"",
                skein_key=b"",
                rest_address=rest_address,
            )
        )
    return files


def test_a_name_means_the_one_that_runs(config: Settings) -> None:
    keep(config, ENDED, RUNNING)
    named = config.overlay({"yarn.application.id": "reports"})
    assert application_of(named).application_id == RUNNING


def test_one_that_yarn_does_not_know_is_gone(config: Settings) -> None:
    keep(config, OTHERS, RUNNING)
    assert application_of(config.overlay({"yarn.application.id": "reports"})).application_id == RUNNING


def test_where_all_have_ended_the_name_says_nothing(config: Settings) -> None:
    keep(config, ENDED, OTHERS)
    with pytest.raises(CommandError, match=f"Several applications.*{ENDED}.*{OTHERS}"):
        application_of(config.overlay({"yarn.application.id": "reports"}))


def test_of_one_without_secrets_its_end_is_told(config: Settings) -> None:
    with pytest.raises(CommandError, match=rf"{ENDED} \(reports\) has ended: FAILED"):
        application_of(config.overlay({"yarn.application.id": ENDED}))
    for other in (RUNNING, OTHERS):
        with pytest.raises(CommandError, match=f"no secrets of {other}"):
            application_of(config.overlay({"yarn.application.id": other}))


def test_a_session_that_is_gone_is_told_on_one_line(config: Settings) -> None:
    files = keep(config, ENDED)
    files.write_properties(SessionProperties(ENDED))
    with pytest.raises(CommandError) as refused:
        present_address(config, application_of(config))
    text = str(refused.value)
    assert "\n" not in text
    assert "org.apache" not in text and "Shell.java" not in text
    assert "exitCode: 1" in text and "Exception from container-launch." in text
    assert f"{files.properties_path} names it" in text


def test_a_session_of_a_cluster_that_was_set_up_anew(config: Settings, tmp_path: Path) -> None:
    """The properties file names it still: which YARN was asked is said, and which file to remove."""
    files = keep(config)
    files.write_properties(SessionProperties(OTHERS))
    said = rf"knows no application {OTHERS}.*YARN of {tmp_path} \(HADOOP_CONF_DIR\).*{files.properties_path} names it"
    with pytest.raises(CommandError, match=f"no secrets of {OTHERS} in {files.folder}, and YARN {said}"):
        application_of(config)
    keep(config, OTHERS)
    with pytest.raises(CommandError, match=said):
        present_address(config, application_of(config))
    with pytest.raises(CommandError, match=r"knows no application.*Name another with -yid"):
        application_of(config.overlay({"yarn.application.id": "application_1700000000000_0009"}))


def test_who_attends_a_session_that_yarn_has_forgotten_is_told(
    config: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yarrow.cli.session_command._LOOK", 0.01)
    reading, writing = os.pipe()
    rest = ThreadingHTTPServer(("127.0.0.1", 0), Overview)
    with os.fdopen(reading) as typed, os.fdopen(writing, "w"), running_in_thread(rest, "overview"):
        monkeypatch.setattr("sys.stdin", typed)
        keep(config, OTHERS, rest_address=f"http://127.0.0.1:{rest.server_address[1]}")
        with pytest.raises(ApplicationNotFoundError, match=OTHERS):
            attach(config.overlay({"yarn.application.id": OTHERS}), detached=False)


class Overview(BaseHTTPRequestHandler):
    """A master of which YARN knows nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Tests are quiet."""


def test_an_application_is_waited_for_while_yarn_restarts(
    config: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("yarrow.cli.application_command._LOOK_AGAIN", 0.0)
    ended = end_if_told(config, ENDED)
    assert ended is not None and ended.final_status is FinalStatus.FAILED
    nobody = {f"yarn.resourcemanager{name}.address": "127.0.0.1:1" for name in ("", ".webapp")}
    write(tmp_path, "yarn-site.xml", nobody)
    assert end_if_told(config, ENDED) is None
    assert "127.0.0.1:1 (connection refused). The address is" in (said := capsys.readouterr().err)
    assert f"This command still waits for {ENDED}." in said


def test_who_waited_for_the_end_is_told_all_of_it() -> None:
    report = ApplicationReport(
        application_id=ENDED,
        name="broken",
        user="joe",
        queue="default",
        state=YarnState.FINISHED,
        final_status=FinalStatus.FAILED,
        diagnostics=FAILED_JOB,
        tracking_url="",
        tags=frozenset(),
        start_ms=0,
    )
    assert end_text(report).endswith(f"YARN says: {FAILED_JOB}")
    assert end_sentence(report) == (
        f"{ENDED} (broken) has ended: FAILED. YARN says: ZeroDivisionError: integer division or modulo by zero"
        " Job 'broken' (ab) failed."
    )


def test_the_next_master_is_waited_for(config: Settings) -> None:
    """Between two attempts YARN says ACCEPTED: who waits for a job does not lose it by that."""
    tell(RUNNING, state="ACCEPTED")
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        tell(RUNNING)

    with socket.create_server(("127.0.0.1", 0)) as rest:
        rest_address = f"http://127.0.0.1:{rest.getsockname()[1]}"
        keep(config, RUNNING, rest_address=rest_address)
        with YarnClusterDescriptor(config, say) as descriptor:
            assert descriptor.retrieve(RUNNING).rest_address == rest_address
    assert len(said) == 1
    assert "does not run yet: it is ACCEPTED. This command waits for the master" in said[0]


def test_one_that_ends_meanwhile_is_not_waited_for(config: Settings) -> None:
    tell(RUNNING, state="ACCEPTED")
    files = keep(config, RUNNING)

    def say(text: str) -> None:
        tell(RUNNING, state="FAILED", finalStatus="FAILED", diagnostics=FAILED_MASTER)

    with (
        YarnClusterDescriptor(config, say) as descriptor,
        pytest.raises(YarnError, match=r"has ended: FAILED, FAILED: .*exitCode: 1 .*container-launch\."),
    ):
        descriptor.retrieve(RUNNING)
    assert files.known_applications() == []
