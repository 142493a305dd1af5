"""The doctor on a secured cluster: which applications of this user would outlive their delegation tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.services.http_threads import running_in_thread
from yarrow.cli.doctor import doctor, doctor_tokens
from yarrow.cli.doctor.doctor_findings import Level
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.runtime.common.clock import ManualClock
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets

HOUR = 3_600_000
#: Of the tokens, in epoch milliseconds.
END = 1_700_000_000_000


class _Master(BaseHTTPRequestHandler):
    """Says when its tokens end, to who shows the token of its REST."""

    def do_GET(self) -> None:
        known = self.headers["Authorization"] == "Bearer open"
        data = json.dumps({"yarn-tokens-end": END if known else 0}).encode()
        self.send_response(200 if known and self.path == "/overview" else 401)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        return None


@pytest.fixture
def master() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Master)
    with running_in_thread(server, "master"):
        yield f"http://127.0.0.1:{server.server_port}"


def known(files: ApplicationFiles, number: int, address: str, token: str = "open") -> str:
    """An application of which the client has a file."""
    application_id = f"application_{END}_{number:04d}"
    secrets = ClientSecrets(
        application_id=application_id,
        name=f"session {number}",
        rest_token=token,
        skein_certificate=b"",
        skein_key=b"",
        rest_address=address,
    )
    files.write_secrets(secrets)
    return application_id


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (END - 30 * HOUR, "ends in 1.2 days"),
        (END - 2 * HOUR, "ends in 2.0 hours"),
        (END, "has ended"),
    ],
)
def test_each_application_that_answers_is_named_with_the_time_that_is_left(
    tmp_path: Path, master: str, now: int, said: str
) -> None:
    config = Settings({"yarn.properties-file.location": str(tmp_path / "files")})
    files = ApplicationFiles.of(config)
    runs = known(files, 1, master)
    # Has ended; not ours to ask; not ready yet.
    known(files, 2, "http://127.0.0.1:1")
    known(files, 3, master, token="another")
    known(files, 4, "")
    (found,) = doctor_tokens.applications(config, ManualClock(now))
    assert found.level is Level.WARN and found.subject == "tokens"
    assert f"{runs} (session 1) {said}" in found.text


def test_only_where_hadoop_asks_for_kerberos(
    tmp_path: Path, master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    files = {"yarn.properties-file.location": str(tmp_path / "files"), "yarn.environment": "none"}
    known(ApplicationFiles.of(Settings(files)), 1, master)
    for way, expected in (("kerberos", 1), ("simple", 0)):
        (tmp_path / "core-site.xml").write_text(
            "<configuration><property><name>hadoop.security.authentication</name>"
            f"<value>{way}</value></property></configuration>"
        )
        (tmp_path / "yarn-site.xml").write_text("<configuration></configuration>")
        found = [one for one in doctor.examine(Settings(files)) if one.subject == "tokens"]
        assert len(found) == expected
