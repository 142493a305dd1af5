"""RestClient: Flink's REST API over the standard library, for commands and the remote executor.

Owner: any thread; blocking, one connection a request. Errors of the server become RestError with its own
words. A lost request is repeated if that cannot execute it twice; the address of a moved master is looked up
again.
"""

from __future__ import annotations

import copy
import http.client
import json
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from yarrow.client.errors import CommandError
from yarrow.runtime.common.http_answers import body_of
from yarrow.runtime.config.options import rest, security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import YarnUnreachableError

if TYPE_CHECKING:
    from yarrow.client.rest.rest_tls import RestTls

_TIMEOUT = 15.0
#: Seconds in which the server must accept a file.
UPLOAD_SECONDS = 300.0
_MAX_ANSWER = 100 << 20
_START_ONE = (
    "Is the cluster running? Start one with `yarrow start-cluster`, or name another with -m host:port, or an"
    " application on YARN with -yid."
)


class RestError(CommandError):
    """The server refused a request; `status` is its HTTP status, `errors` its text."""

    def __init__(self, message: str, status: int, errors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.errors = tuple(errors)


class RestUnavailableError(CommandError):
    """No REST server answers at the address."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a lost request is repeated, and the seconds between repetitions."""

    max_attempts: int = 20
    delay: float = 3.0

    @staticmethod
    def of(config: Settings) -> RetryPolicy:
        """Reads rest.retry.*."""
        return RetryPolicy(config.get(rest.RETRY_MAX_ATTEMPTS), config.get(rest.RETRY_DELAY).seconds)


@dataclass(frozen=True, slots=True)
class RestTransport:
    """TLS and limits of requests."""

    #: None = plain text.
    tls: RestTls | None = None
    #: Seconds to wait for an answer; a request may set more.
    timeout_seconds: float = _TIMEOUT
    #: Most bytes of an answer; a longer one is refused.
    max_answer_bytes: int = _MAX_ANSWER

    @staticmethod
    def of(config: Settings) -> RestTransport:
        """Reads security.ssl.rest.*, rest.connection-timeout and rest.client.max-content-length."""
        from yarrow.client.rest.rest_tls import RestTls

        return RestTransport(
            RestTls.of(config) if config.get(security.REST_ENABLED) else None,
            config.get(rest.CONNECTION_TIMEOUT).seconds,
            config.get(rest.CLIENT_MAX_CONTENT_LENGTH).bytes,
        )


class RestClient:
    """Talks to one server.

    A request is repeated only if this client has had an answer before, and the request is a GET or was not
    sent. Without an earlier answer the server is missing, and the client says so at once. `locate` returns
    the server's present address (a URL) before each repetition. If nobody answers at the known address, even
    the first request asks it. An error of `locate` ends the request.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        transport: RestTransport = RestTransport(),
        token: str = "",
        retry: RetryPolicy = RetryPolicy(),
        locate: Callable[[], str] | None = None,
        remedy: str = _START_ONE,
        result_key: bytes = b"",
    ) -> None:
        """`result_key`: the key from the cluster's secrets file with which its workers seal rows; it is never sent."""
        self.host, self.port, self._tls = host, port, transport.tls
        self._timeout = transport.timeout_seconds
        self._token = token
        self._retry = retry
        self._max_answer = transport.max_answer_bytes
        self._locate = locate
        self._remedy = remedy
        self.result_key = result_key
        self._answered = False

    @staticmethod
    def of(
        config: Settings,
        host: str,
        port: int,
        *,
        token: str = "",
        retry: RetryPolicy | None = None,
        locate: Callable[[], str] | None = None,
        remedy: str = _START_ONE,
        result_key: bytes = b"",
    ) -> RestClient:
        """Makes one with configured TLS, limits and time-outs, and the configured `retry` unless one is given."""
        return RestClient(
            host,
            port,
            transport=RestTransport.of(config),
            token=token,
            retry=RetryPolicy.of(config) if retry is None else retry,
            locate=locate,
            remedy=remedy,
            result_key=result_key,
        )

    @property
    def address(self) -> str:
        """URL of the server."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self._tls is not None else 'http'}://{host}:{self.port}"

    @property
    def is_proved(self) -> bool:
        """Whether every answer comes from a server with a checked certificate."""
        return self._tls is not None and self._tls.proves_server

    def apart(self) -> RestClient:
        """A client like this one, which stays with the present server when other threads look for another one."""
        return copy.copy(self)

    def get(self, path: str) -> Any:
        """The JSON answer to GET."""
        return self.json("GET", path)

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a request with a JSON body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        answer = self.request(method, path, data, headers)
        try:
            return json.loads(answer) if answer else {}
        except ValueError:
            raise RestError(
                f"{self.address} answered {method} {path} with text that is no JSON ("
                f"{answer[:80].decode(errors='replace')!r}): is it a Yarrow cluster? {self._remedy}",
                HTTPStatus.OK,
            ) from None

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """The raw answer. Raises RestError or RestUnavailableError."""
        pause, attempts = threading.Event(), 0
        while True:
            try:
                answer = self._once(method, path, body, headers or {}, timeout or self._timeout)
            except (RestUnavailableError, RestError) as error:
                attempts += 1
                if attempts > self._retry.max_attempts or not self._may_repeat(method, error, attempts):
                    raise
            else:
                self._answered = True
                return answer
            if self._answered:
                pause.wait(self._retry.delay)
            self._look_for_it()

    def answers(self) -> bool:
        """Whether a server answers at the present address, asked once."""
        try:
            self._once("GET", "/overview", None, {}, self._timeout)
        except RestUnavailableError:
            return False
        except RestError:
            pass
        return True

    def look_again(self) -> bool:
        """Finds the server's new address; False if nobody knows. Raises an error that says that it is gone."""
        if self._locate is None:
            return False
        self._move(self._locate())
        return True

    def upload(self, path: str, request: Mapping[str, Any], files: Mapping[str, bytes]) -> Any:
        """POST as multipart: `request` as JSON, and files by name, like Flink's clients."""
        boundary = os.urandom(16).hex()
        body = multipart(boundary, json.dumps(request).encode(), files)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return json.loads(self.request("POST", path, body, headers, timeout=UPLOAD_SECONDS))

    def open(self, method: str, path: str, body: Any, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """Sends one request with the token; the caller reads and closes the answer.

        Raises OSError and HTTPException unchanged.
        """
        connection = self._connect(self._timeout)
        try:
            connection.request(method, path, body, {**headers, **self._authorization()})
            response = connection.getresponse()
            # The answer has its own file on the socket, which stays open until that is closed.
            if connection.sock is not None:
                connection.sock.close()
            return response
        except BaseException:
            connection.close()
            raise

    def _may_repeat(self, method: str, error: Exception, attempts: int) -> bool:
        if isinstance(error, RestError):
            # The server answers, but its cluster has no leader yet (or any more).
            return method == "GET" and self._answered and error.status == HTTPStatus.SERVICE_UNAVAILABLE
        if not self._answered and (self._locate is None or attempts > 1):
            return False
        return method == "GET" or isinstance(error.__cause__, ConnectionRefusedError)

    def _look_for_it(self) -> None:
        try:
            self.look_again()
        except YarnUnreachableError:
            # YARN restarts, or this machine has lost its network: a server that has answered before is asked
            # again.
            if not self._answered:
                raise

    def _move(self, address: str) -> None:
        parts = urlsplit(address)
        self.host, self.port = parts.hostname or self.host, parts.port or self.port

    def _once(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout: float
    ) -> bytes:
        connection = self._connect(timeout)
        try:
            connection.request(method, path, body, {**headers, **self._authorization()})
            response = connection.getresponse()
            data = body_of(response, self._max_answer)
        except (OSError, http.client.HTTPException) as error:
            raise RestUnavailableError(
                f"No REST server answers at {self.address}: {error or type(error).__name__}. {self._remedy}"
            ) from error
        finally:
            connection.close()
        if len(data) > self._max_answer:
            raise RestError(
                f"{method} {path}: the answer is longer than {rest.CLIENT_MAX_CONTENT_LENGTH.key} ("
                f"{self._max_answer} bytes); raise the limit with -D.",
                response.status,
            )
        if response.status >= 400:
            raise _refusal(method, path, response.status, data)
        return data

    def _authorization(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls is not None:
            return self._tls.connection(self.host, self.port, timeout)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout)


def multipart(boundary: str, request: bytes, files: Mapping[str, bytes]) -> bytes:
    """A multipart body: the part `request`, then `file_0`, `file_1` ... under their names."""
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="request"\r\n'
        f"Content-Type: application/json\r\n\r\n".encode()
        + request
        + b"\r\n"
    ]
    for number, (name, data) in enumerate(files.items()):
        head = (
            f'--{boundary}\r\nContent-Disposition: form-data; name="file_{number}"; filename="{name}"\r\n'
            f"Content-Type: application/octet-stream\r\n\r\n"
        )
        parts.append(head.encode() + data + b"\r\n")
    return b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _refusal(method: str, path: str, status: int, data: bytes) -> RestError:
    errors: list[str] = []
    try:
        found = json.loads(data)
        if isinstance(found, dict):
            errors = [str(error) for error in found.get("errors", [])]
    except ValueError:
        errors = [data[:500].decode("utf-8", "replace")]
    said = "\n".join(error for error in errors if error) or "the server gave no reason"
    return RestError(f"{method} {path} was refused with status {status}: {said}", status, errors)
