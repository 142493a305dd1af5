"""The doctor where web pages of Hadoop ask for a login that it does not make: a word, no failure."""

from __future__ import annotations

from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.cli.doctor import doctor_hadoop
from yarrow.cli.doctor.doctor_findings import Level
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration
from yarrow.runtime.yarn.resource_manager_web import ResourceManagerWebError


class _AsksForLogin(BaseHTTPRequestHandler):
    """Refuses everything, three minutes ahead of us."""

    def do_GET(self) -> None:
        self.send_response_only(401)
        self.send_header("WWW-Authenticate", "Negotiate")
        self.send_header("Date", formatdate(self.server.now, usegmt=True))  # type: ignore[attr-defined]
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    made = ThreadingHTTPServer(("127.0.0.1", 0), _AsksForLogin)
    made.now = doctor_hadoop.SystemClock().epoch_ms() / 1000 + 180  # type: ignore[attr-defined]
    with running_in_thread(made, "asks-for-login"):
        yield made


def test_pages_of_yarn_that_want_a_login(server: ThreadingHTTPServer) -> None:
    address = f"127.0.0.1:{server.server_port}"
    properties = {
        "yarn.resourcemanager.address": address,
        "yarn.resourcemanager.webapp.address": address,
        "hadoop.security.authentication": "kerberos",
    }
    secured = HadoopConfiguration(Path("/conf"), "HADOOP_CONF_DIR", properties)
    (found,) = doctor_hadoop.resource_manager(Settings(), secured)
    assert found.level is Level.WARN
    assert "ask for a login" in found.text
    del properties["hadoop.security.authentication"]
    with pytest.raises(ResourceManagerWebError):
        list(doctor_hadoop.resource_manager(Settings(), secured))


def test_a_name_node_that_wants_a_login_tells_its_time_all_the_same(server: ThreadingHTTPServer) -> None:
    state, ahead = doctor_hadoop._name_node([f"http://127.0.0.1:{server.server_port}"])
    assert state == {}
    assert 170 < ahead < 190
