"""Settings and tokens of Spark's own pages; the pages themselves are in tests/spark/test_stages.py."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.client
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from unittest.mock import MagicMock

import pytest
from py4j.protocol import Py4JError

from yarrow.container.batch.spark.spark_pages import SparkPages, page_settings, signed_token
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.rpc.batch_gateways import NoSparkPagesError
from yarrow.runtime.rpc.messages import SparkPageRequest

KEY = bytes(range(32))


def decoded(part: str) -> bytes:
    return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))


def test_a_token_is_signed_and_ends() -> None:
    header, claims, signature = signed_token(KEY, 1_000_000).split(".")
    assert json.loads(decoded(header)) == {"alg": "HS256"}
    assert json.loads(decoded(claims))["exp"] == 1_000_060
    expected = hmac.new(KEY, f"{header}.{claims}".encode(), hashlib.sha256).digest()
    assert hmac.compare_digest(decoded(signature), expected)


def test_pages_change_nothing_and_ask_for_a_token() -> None:
    found = page_settings("key", "")
    assert found["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    off = ("spark.ui.killEnabled", "spark.ui.threadDumpsEnabled", "spark.ui.heapHistogramEnabled")
    assert [found[key] for key in off] == ["false"] * 3


def test_a_program_can_only_hide_more() -> None:
    pattern = page_settings("key", "(?i)price")["spark.redaction.regex"]
    # Python wants flags in front; Java takes them anywhere.
    hidden = re.compile(pattern.replace("|(?i)", "|"))
    for name in (
        "spark.authenticate.secret",
        "my.Token",
        "aws.access.key",
        "db.password",
        "credentials",
        "spark.hadoop.fs.azure.account.key.store.blob.core.windows.net",
        "ssl.key.passphrase",
        "maps.api-key",
        "properties.sasl.jaas.config",
        "price",
    ):
        assert hidden.search(name), name
    assert not hidden.search("spark.app.name")
    assert page_settings("key", "")["spark.redaction.regex"] in pattern


def test_pages_that_start_in_part_are_stopped() -> None:
    session = MagicMock()
    context = session.sparkContext
    context._jsc.sc().conf().clone().get.return_value = ""
    pages = context._jvm.org.apache.spark.ui.SparkUI.create.return_value
    pages.attachAllHandlers.side_effect = Py4JError("no such method")
    with pytest.raises(NoSparkPagesError, match="did not start: no such method"):
        SparkPages(session, ManualClock(), 1000).read(SparkPageRequest(path="/jobs/", base=""))
    pages.bind.assert_called_once()
    pages.stop.assert_called_once()


@contextmanager
def server_of_pages(status: int, body: bytes) -> Iterator[SparkPages]:
    """Pages of a server that answers so."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    session = MagicMock()
    context = session.sparkContext
    context._jsc.sc().conf().clone().get.return_value = ""
    context._jvm.org.apache.spark.ui.SparkUI.create.return_value.boundPort.return_value = server.server_port
    try:
        yield SparkPages(session, ManualClock(), 1000)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize("status", [401, 403])
def test_a_refused_token_is_no_refusal_of_the_user(status: int) -> None:
    told = pytest.raises(NoSparkPagesError, match=rf"own SparkDriver \(status {status}\)")
    with server_of_pages(status, b"") as pages, told:
        pages.read(SparkPageRequest(path="/jobs/", base=""))


def test_a_page_comes_whole_or_is_refused_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[http.client.HTTPResponse] = []

    class Connection(http.client.HTTPConnection):
        def getresponse(self) -> http.client.HTTPResponse:
            answers.append(super().getresponse())
            return answers[-1]

    monkeypatch.setattr(http.client, "HTTPConnection", Connection)
    with server_of_pages(200, b"x" * 1000) as pages:
        assert pages.read(SparkPageRequest(path="/jobs/", base="")).body == b"x" * 1000
    with server_of_pages(200, b"x" * 1001) as pages, pytest.raises(NoSparkPagesError, match="more than 1000"):
        pages.read(SparkPageRequest(path="/jobs/", base=""))
    assert [answer.isclosed() for answer in answers] == [True, True]
