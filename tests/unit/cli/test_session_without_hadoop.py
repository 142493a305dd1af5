"""`yarrow session -id` where no Hadoop cluster is named: REST is enough to attend a session and to end it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from yarrow.cli.session_command import attach
from yarrow.client.errors import CommandError
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets

APPLICATION = "application_1700000000000_0001"


class Master:
    """Answers as a session does; told to end, it goes or stays."""

    def __init__(self, goes: bool) -> None:
        master = self
        self.told = threading.Event()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(b'{"yarn-attempt": 1, "yarn-max-attempts": 1}')

            def do_DELETE(self) -> None:
                self.do_GET()
                master.told.set()
                if goes:
                    threading.Thread(target=master.close).start()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    monkeypatch.setattr("sys.stdin", io.StringIO("stop\n"))
    return Settings({"yarn.properties-file.location": str(tmp_path), "yarn.application.id": APPLICATION})


def known(settings: Settings, address: str) -> ApplicationFiles:
    files = ApplicationFiles.of(settings)
    files.write_secrets(
        ClientSecrets(
            application_id=APPLICATION,
            name="session",
            rest_token="token",
            skein_certificate=b"",
            skein_key=b"",
            rest_address=address,
        )
    )
    return files


@pytest.fixture
def stays() -> Iterator[Master]:
    master = Master(goes=False)
    yield master
    master.close()


def test_stop_ends_the_session_and_the_command_as_it_should(
    settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    master = Master(goes=True)
    files = known(settings, master.address)
    assert attach(settings, detached=False) == 0
    assert master.told.is_set()
    out = capsys.readouterr().out
    assert "Attempt 1 of 1 of the application, the last" in out
    assert f"{APPLICATION} has ended." in out
    assert files.known_applications() == []


def test_a_session_that_goes_on_is_named_with_what_would_end_it(
    settings: Settings, stays: Master, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("yarrow.cli.session_command._GRACE", 0.3)
    files = known(settings, stays.address)
    with pytest.raises(CommandError, match=rf"still answers.*HADOOP_CONF_DIR.*-kill {APPLICATION}"):
        attach(settings, detached=False)
    assert stays.told.is_set()
    assert files.known_applications() == [APPLICATION], "it can still be named"
