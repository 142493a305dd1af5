"""When a NameNode counts as serving, from answers as Hadoop 3.5 gives them while it starts, over real HTTP."""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import unquote

import pytest

from tests.support.hadoop import readiness, web
from tests.support.services.http_threads import running_in_thread

STATE = "/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
STARTED = "/jmx?get=Hadoop:service=NameNode,name=StartupProgress::PercentComplete"
STARTING_UP = '{"RemoteException":{"exception":"RetriableException","message":"Namenode is in startup mode"}}'


class Answers(BaseHTTPRequestHandler):
    by_path: ClassVar[dict[str, tuple[int, str]]] = {}

    def do_GET(self) -> None:
        status, text = self.by_path.get(unquote(self.path), (404, "{}"))
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_PUT(self) -> None:
        self.path = "PUT"
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that gives the answers set by `answer`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    with running_in_thread(server, "hadoop"):
        yield server.server_port
    Answers.by_path = {}


def answer(state: str | None, complete: float | None) -> None:
    """What the NameNode says of itself; None for what it does not know of yet."""
    beans = [] if state is None else [{"FSState": state}]
    Answers.by_path = {STATE: (200, json.dumps({"beans": beans}))}
    if complete is not None:
        Answers.by_path[STARTED] = (200, json.dumps({"beans": [{"PercentComplete": complete}]}))


@pytest.mark.parametrize(
    ("state", "complete", "missing"),
    [
        (None, None, "no state yet"),
        ("Operational", None, "does not answer"),
        # Its state is told before it has entered the safe mode that it starts in.
        ("Operational", 0.83, "start-up"),
        ("safeMode", 0.83, "safe mode"),
        ("Operational", 1.0, None),
        ("safeMode", 1.0, "safe mode"),
    ],
)
def test_a_name_node_serves_once_it_has_left_its_start_up_and_safe_mode(
    port: int, state: str | None, complete: float | None, missing: str | None
) -> None:
    answer(state, complete)
    found = readiness.what_is_missing({"namenode.web": port}, "namenode")
    assert found is None if missing is None else missing in str(found)


def test_a_refusal_is_told_in_the_servers_words(port: int) -> None:
    Answers.by_path = {"PUT": (403, STARTING_UP)}
    with pytest.raises(urllib.error.HTTPError, match=r"PUT .*MKDIRS.*Namenode is in startup mode") as refused:
        web.make_folder(port, "/tmp", "1777", "joe")
    assert refused.value.code == 403
