"""The progress line: what it counts, and that it never disturbs a job."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.common.job_id import JobID
from yarrow.datastream.program import progress as module
from yarrow.datastream.program.progress import JobCounters, line_of, progress
from yarrow.runtime.graph.executor import DetachedJobClient

JOB = {
    "vertices": [
        {
            "id": "a",
            "parallelism": 2,
            "metrics": {"read-records": 5000, "write-records": 5000, "accumulated-backpressured-time": 1000},
        },
        {"id": "b", "parallelism": 2, "metrics": {"read-records": 4000, "write-records": 10}},
    ],
    "plan": {"nodes": [{"id": "a"}, {"id": "b", "inputs": [{"num": 0, "id": "a"}]}]},
}


class ClientWithAddress(DetachedJobClient):
    """A client of a cluster with a web address."""

    def __init__(self, address: str) -> None:
        super().__init__("0" * 32)
        self._address = address

    def get_web_interface_url(self) -> str | None:
        return self._address


class Terminal(io.StringIO):
    def __init__(self) -> None:
        super().__init__()
        self.written = threading.Event()

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.written.set()


class _JobPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = json.dumps(JOB).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def address() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _JobPage)
    with running_in_thread(server, "job-page"):
        yield f"http://127.0.0.1:{server.server_address[1]}"


def test_sources_are_counted_and_waiting_is_a_share() -> None:
    now = JobCounters.of(JOB)
    assert now == JobCounters(5000, 1000, 4)
    line = line_of(JobCounters(1000, 500, 4), now, 2.0, "http://x")
    assert line == "5,000 records, 2,000/s, back-pressured 6 %, http://x"


def test_a_client_without_address_shows_nothing() -> None:
    out = io.StringIO()
    with progress(DetachedJobClient(JobID("0" * 32).to_hex_string()), out) as shown:
        assert shown is None
    assert out.getvalue() == ""


def test_the_line_is_written_and_wiped(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_INTERVAL", 0.01)
    out = Terminal()
    with progress(ClientWithAddress(address), out):
        assert out.written.wait(120)
    assert "5,000 records" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")
