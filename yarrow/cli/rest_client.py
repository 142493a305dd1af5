"""RestClient: Flink's REST API over the standard library, for commands and the remote executor.

Owner: any thread; blocking, one connection a request. Errors of the server become RestError with its own words.
"""

from __future__ import annotations

import http.client
import json
import os
import ssl
from collections.abc import Mapping, Sequence
from typing import Any

from yarrow.cli.errors import CommandError
from yarrow.runtime.config.options import rest, security
from yarrow.runtime.config.settings import Settings

_TIMEOUT = 15.0


class RestError(CommandError):
    """The server refused a request; `status` is its HTTP status, `errors` what it said."""

    def __init__(self, message: str, status: int, errors: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.errors = tuple(errors)


class RestUnavailableError(CommandError):
    """No REST server answers at the address."""


class RestClient:
    """Talks to one server."""

    def __init__(self, host: str, port: int, tls: bool = False, timeout: float = _TIMEOUT) -> None:
        self.host, self.port, self._tls = host, port, tls
        self._timeout = timeout

    @staticmethod
    def of(config: Settings, host: str, port: int) -> RestClient:
        """With TLS and time-outs as configured."""
        return RestClient(
            host,
            port,
            tls=config.get(security.REST_ENABLED),
            timeout=config.get(rest.CONNECTION_TIMEOUT).seconds,
        )

    @property
    def address(self) -> str:
        """URL of the server."""
        return f"{'https' if self._tls else 'http'}://{self.host}:{self.port}"

    def get(self, path: str) -> Any:
        """The JSON answer to GET."""
        return self.json("GET", path)

    def json(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The JSON answer to a request with a JSON body."""
        data = None if body is None else json.dumps(body).encode()
        headers = {} if data is None else {"Content-Type": "application/json"}
        answer = self.request(method, path, data, headers)
        return json.loads(answer) if answer else {}

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> bytes:
        """The raw answer. Raises RestError or RestUnavailableError."""
        connection = self._connect(timeout or self._timeout)
        try:
            connection.request(method, path, body, dict(headers or {}))
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise RestUnavailableError(
                f"No REST server answers at {self.address}: {error or type(error).__name__}. Is the cluster"
                " running? Start one with `yarrow start-cluster`, or name another with -m host:port."
            ) from error
        finally:
            connection.close()
        if response.status >= 400:
            raise _refusal(method, path, response.status, data)
        return data

    def upload(self, path: str, request: Mapping[str, Any], files: Mapping[str, bytes]) -> Any:
        """POST as multipart: `request` as JSON, and files by name, as Flink's clients send them."""
        boundary = os.urandom(16).hex()
        body = multipart(boundary, json.dumps(request).encode(), files)
        headers = {"Content-Type": f"multipart/form-data; boundary={boundary}"}
        return json.loads(self.request("POST", path, body, headers, timeout=300.0))

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        if self._tls:
            context = ssl.create_default_context()
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout, context=context)
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
    said = "\n".join(error for error in errors if error) or "it gave no reason"
    return RestError(f"{method} {path} was refused with status {status}: {said}", status, errors)
