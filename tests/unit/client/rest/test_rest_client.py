"""RestClient: what is asked again and what is not, a master that has moved, limits, and whom TLS believes."""

from __future__ import annotations

import datetime
import hashlib
import ipaddress
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from yarrow.client.errors import CommandError
from yarrow.client.rest.job_heartbeats import JobHeartbeats, JobHeartbeatSettings
from yarrow.client.rest.rest_client import (
    RestClient,
    RestError,
    RestTransport,
    RestUnavailableError,
    RetryPolicy,
)
from yarrow.client.rest.rest_operations import run_operation
from yarrow.client.rest.rest_tls import RestTls
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.yarn.gateways import YarnError, YarnUnreachableError

HOST = "127.0.0.1"
AT_ONCE = RetryPolicy(3, 0.0)


#: Numbers that the tests give for a status: the server is gone after so many bytes of an answer of eight.
CUT = {1: 0, 2: 7}
#: What is answered with a number; every other one is a refusal.
BODIES = {
    200: b'{"a": 1}',
    3: b"<html>",
    4: b'{"request-id": "7"}',
    5: b'{"status": {"id": "IN_PROGRESS"}}',
    6: b'{"status": {"id": "COMPLETED"}, "operation": {"location": "there"}}',
}


class Master:
    """A server that answers what the test says, and remembers what it was asked."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        asked: list[str] = []
        answers: list[int] = []
        patched = threading.Event()
        master = self
        #: Called with each question, before its answer.
        self.heard: Callable[[], object] = lambda: None

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.command)
                master.heard()
                status = answers.pop(0) if answers else 200
                cut = CUT.get(status)
                if status == 0:
                    # Gone in the middle of an answer.
                    return
                self.send_response(max(200, status))
                if cut is not None:
                    self.send_header("Content-Length", "8")
                    self.end_headers()
                    self.wfile.write(b'{"a": 1}'[:cut])
                    return
                self.end_headers()
                self.wfile.write(BODIES.get(status, b'{"errors": ["not now"]}'))

            do_POST = do_GET

            def do_PATCH(self) -> None:
                self.do_GET()
                patched.set()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.asked, self.answers, self.patched = asked, answers, patched
        self._server = ThreadingHTTPServer((HOST, 0), Handler)
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@pytest.fixture
def start() -> Iterator[Callable[..., Master]]:
    masters: list[Master] = []

    def make(context: ssl.SSLContext | None = None) -> Master:
        masters.append(Master(context))
        return masters[-1]

    yield make
    for master in masters:
        master.close()


def test_a_question_that_was_lost_is_asked_again(start: Callable[..., Master]) -> None:
    master = start()
    rest = RestClient(HOST, master.port, retry=AT_ONCE)
    assert rest.get("/") == {"a": 1}
    master.answers += [0, 503, 200]
    assert rest.get("/") == {"a": 1}
    assert len(master.asked) == 4
    master.answers += [0] * 4
    with pytest.raises(RestUnavailableError):
        rest.get("/")
    assert len(master.asked) == 8


@pytest.mark.parametrize("cut", CUT)
def test_an_answer_that_ends_in_the_middle_is_none(start: Callable[..., Master], cut: int) -> None:
    master = start()
    rest = RestClient(HOST, master.port, retry=AT_ONCE)
    with pytest.raises(RestUnavailableError, match="IncompleteRead"):
        master.answers.append(cut)
        rest.get("/")
    rest.get("/")
    master.answers += [cut, 200]
    assert rest.get("/") == {"a": 1}


def test_an_answer_that_is_no_json_names_the_server(start: Callable[..., Master]) -> None:
    master = start()
    master.answers.append(3)
    with pytest.raises(RestError, match=rf"http://{HOST}:{master.port} answered GET /jobs with .*no JSON"):
        RestClient(HOST, master.port, retry=AT_ONCE).get("/jobs")


def test_what_may_have_been_done_is_not_asked_again(start: Callable[..., Master]) -> None:
    master = start()
    rest = RestClient(HOST, master.port, retry=AT_ONCE)
    rest.get("/")
    master.answers += [0, 503]
    with pytest.raises(RestUnavailableError):
        rest.json("POST", "/", {})
    with pytest.raises(RestError, match="not now"):
        rest.json("POST", "/", {})
    assert master.asked == ["GET", "POST", "POST"]


def test_limits_and_attempts_are_those_of_the_configuration(start: Callable[..., Master]) -> None:
    config = Settings(
        {
            "rest.retry.max-attempts": "2",
            "rest.retry.delay": "70 ms",
            "rest.connection-timeout": "1234 ms",
            "rest.client.max-content-length": "7 bytes",
        }
    )
    assert RetryPolicy.of(config) == RetryPolicy(2, 0.07)
    assert RestTransport.of(config) == RestTransport(None, 1.234, 7)
    master = start()
    rest = RestClient.of(config, HOST, master.port)
    with pytest.raises(RestError, match=r"rest\.client\.max-content-length"):
        rest.get("/")
    rest = RestClient.of(
        Settings({"rest.retry.max-attempts": "2", "rest.retry.delay": "1 ms"}), HOST, master.port
    )
    rest.get("/")
    asked = len(master.asked)
    master.answers += [503] * 9
    with pytest.raises(CommandError):
        rest.get("/")
    assert len(master.asked) - asked == 3, "once, and as often again as rest.retry.max-attempts says"


def test_a_server_that_does_not_answer_is_given_up_after_the_connection_timeout() -> None:
    with socket.create_server((HOST, 0)) as silent:
        config = Settings({"rest.connection-timeout": "100 ms", "rest.retry.max-attempts": "1"})
        rest = RestClient.of(config, HOST, silent.getsockname()[1])
        with pytest.raises(RestUnavailableError, match="timed out"):
            rest.get("/")


def test_nobody_at_the_address_is_said_at_once(start: Callable[..., Master]) -> None:
    master = start()
    master.answers.append(0)
    with pytest.raises(RestUnavailableError, match="yarrow start-cluster"):
        RestClient(HOST, master.port, retry=AT_ONCE).get("/")
    assert len(master.asked) == 1


def test_a_master_that_has_moved_is_found(start: Callable[..., Master]) -> None:
    master, other = start(), start()
    located: list[str] = []

    def locate() -> str:
        located.append(f"http://{HOST}:{other.port}")
        return located[-1]

    gone = Master()
    gone.close()
    # Nothing was sent to the one that is gone, so that a submission is repeated too.
    rest = RestClient(HOST, gone.port, retry=AT_ONCE, locate=locate)
    assert rest.json("POST", "/", {}) == {"a": 1}
    assert (other.asked, len(located)) == (["POST"], 1)

    def ended() -> str:
        raise CommandError("the application has ended")

    with pytest.raises(CommandError, match="has ended"):
        RestClient(HOST, gone.port, retry=AT_ONCE, locate=ended).get("/")
    assert master.asked == []


def test_an_operation_is_asked_about_where_it_was_begun(start: Callable[..., Master]) -> None:
    begun, other = start(), start()
    client = RestClient(HOST, begun.port, retry=AT_ONCE, locate=lambda: f"http://{HOST}:{other.port}")
    # Another thread of the same client looks for the leader.
    begun.heard = client.look_again
    begun.answers += [4, 5, 6]
    assert run_operation(client, "/jobs/1/stop", {}, "/jobs/1/savepoints") == {"location": "there"}
    assert (begun.asked, other.asked) == (["POST", "GET", "GET"], [])
    assert client.port == other.port


def test_yarn_that_does_not_answer_just_now_is_no_end_of_what_has_answered(
    start: Callable[..., Master],
) -> None:
    """A network that is lost for a moment takes the master and YARN along."""
    master = start()

    def locate() -> str:
        raise YarnUnreachableError("YARN's ResourceManager does not answer")

    rest = RestClient(HOST, master.port, retry=AT_ONCE, locate=locate)
    assert rest.get("/") == {"a": 1}
    master.answers += [0, 0]
    assert rest.get("/") == {"a": 1}
    master.answers += [0] * 4
    with pytest.raises(RestUnavailableError):
        rest.get("/")
    gone = Master()
    gone.close()
    with pytest.raises(YarnUnreachableError):
        RestClient(HOST, gone.port, retry=AT_ONCE, locate=locate).get("/")


def test_heartbeats_go_on_when_yarn_has_had_no_answer(start: Callable[..., Master]) -> None:
    """Without them the next master would take the client of its job for dead."""
    master, refused = start(), threading.Event()

    def locate() -> str:
        if not refused.is_set():
            refused.set()
            raise YarnError("application_1 does not run yet: it is ACCEPTED.")
        return f"http://{HOST}:{master.port}"

    gone = Master()
    gone.close()
    rest = RestClient(HOST, gone.port, retry=AT_ONCE, locate=locate)
    beats = JobHeartbeats(rest, "0" * 32, JobHeartbeatSettings(interval=0.01, timeout=1.0))
    try:
        assert master.patched.wait(120.0)
    finally:
        beats.stop()
    assert refused.is_set()


def test_an_answer_that_is_too_long_is_refused(start: Callable[..., Master]) -> None:
    master = start()
    assert RestClient(HOST, master.port, transport=RestTransport(max_answer_bytes=8)).get("/") == {"a": 1}
    with pytest.raises(RestError, match=r"rest\.client\.max-content-length"):
        RestClient(HOST, master.port, transport=RestTransport(max_answer_bytes=7)).get("/")


def certificate(folder: Path, name: str) -> tuple[Path, bytes]:
    """A file with a certificate for `name` and its key; the certificate's bytes."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(name)]
    if name == HOST:
        names = [x509.IPAddress(ipaddress.ip_address(HOST))]
    day = datetime.timedelta(days=1)
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - day)
        .not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = folder / f"{name}.pem"
    path.write_bytes(made.public_bytes(pem) + private)
    return path, made.public_bytes(serialization.Encoding.DER)


def tls_of(**values: str) -> RestTls:
    return RestTls.of(
        Settings({f"security.ssl.rest.{key.replace('_', '-')}": v for key, v in values.items()})
    )


def test_a_certificate_of_the_truststore_is_believed_and_no_other(
    start: Callable[..., Master], tmp_path: Path
) -> None:
    path, der = certificate(tmp_path, HOST)
    stranger, _ = certificate(tmp_path, "elsewhere.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    master = start(context)

    def ask(tls: RestTls) -> object:
        return RestClient(HOST, master.port, transport=RestTransport(tls)).get("/")

    assert ask(tls_of(truststore=str(path))) == {"a": 1}
    assert ask(tls_of(truststore=str(path), verify_hostname="true")) == {"a": 1}
    print_of = hashlib.sha1(der).hexdigest().upper()
    own = Settings(
        {"security.ssl.rest.truststore": str(path), "security.ssl.rest.cert.fingerprint": print_of}
    )
    assert ask(RestTls.of(own)) == {"a": 1}
    with pytest.raises(RestUnavailableError, match="certificate"):
        ask(tls_of(truststore=str(stranger)))
    other = own.overlay({"security.ssl.rest.cert.fingerprint": "00" * 20})
    with pytest.raises(RestUnavailableError, match="fingerprint"):
        ask(RestTls.of(other))


def test_a_name_that_is_not_the_certificates_is_refused_where_it_counts(
    start: Callable[..., Master], tmp_path: Path
) -> None:
    path, _ = certificate(tmp_path, "elsewhere.example")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    master = start(context)
    assert RestClient(HOST, master.port, transport=RestTransport(tls_of(truststore=str(path)))).get("/") == {
        "a": 1
    }
    strict = tls_of(truststore=str(path), verify_hostname="true")
    with pytest.raises(RestUnavailableError, match=HOST):
        RestClient(HOST, master.port, transport=RestTransport(strict)).get("/")


def test_files_that_will_not_do_are_named(tmp_path: Path) -> None:
    keystore = tmp_path / "store.jks"
    keystore.write_bytes(b"\xfe\xed\xfe\xed")
    with pytest.raises(ConfigError, match=r"security\.ssl\.rest\.truststore: .*store\.jks .*keytool"):
        tls_of(truststore=str(keystore))
    with pytest.raises(ConfigError, match="cannot read"):
        tls_of(truststore=str(tmp_path / "none.pem"))
    with pytest.raises(ConfigError, match=r"security\.ssl\.rest\.keystore"):
        tls_of(authentication_enabled="true")
