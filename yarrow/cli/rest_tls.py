"""TLS of REST clients, as security.ssl.rest.* say.

Owner: any thread. Files are PEM; a Java keystore is refused by name, for nothing here reads one. It decides whom a
client believes, and never what a request may do.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
from dataclasses import dataclass
from pathlib import Path

from yarrow.cli.errors import CommandError
from yarrow.runtime.config.option import ConfigOption
from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


@dataclass(frozen=True, slots=True)
class RestTls:
    """Whom to believe, and who we are."""

    context: ssl.SSLContext
    #: Hex of the SHA-1 of the only certificate that is accepted; empty = every certificate of the truststore.
    fingerprint: str = ""

    @staticmethod
    def of(config: Settings) -> RestTls:
        """Raises CommandError that names the option whose file or value will not do."""
        context = ssl.create_default_context(cafile=_pem(config, security.REST_TRUSTSTORE))
        context.check_hostname = config.get(security.REST_VERIFY_HOSTNAME)
        version = config.get(security.PROTOCOL)
        if version not in _VERSIONS:
            raise CommandError(f"{security.PROTOCOL.key} is {version!r}: expected {' or '.join(_VERSIONS)}.")
        context.minimum_version = _VERSIONS[version]
        if config.get(security.REST_AUTHENTICATION_ENABLED):
            _show_certificate(context, config)
        fingerprint = config.get(security.REST_CERT_FINGERPRINT) or ""
        return RestTls(context, fingerprint.replace(":", "").lower())

    def connection(self, host: str, port: int, timeout: float) -> http.client.HTTPSConnection:
        """A connection that is refused at its handshake when the server is another one."""
        return _PinnedConnection(self, host, port, timeout)

    def check(self, certificate: bytes | None) -> None:
        """Raises ssl.SSLError for another certificate than the one that is accepted."""
        # SHA-1 because the option says so; what an attacker would need is a second preimage.
        found = hashlib.sha1(certificate or b"", usedforsecurity=False).hexdigest()
        if self.fingerprint and found != self.fingerprint:
            raise ssl.SSLError(
                f"the server's certificate has the fingerprint {found}, but"
                f" {security.REST_CERT_FINGERPRINT.key} is {self.fingerprint}"
            )


class _PinnedConnection(http.client.HTTPSConnection):
    def __init__(self, tls: RestTls, host: str, port: int, timeout: float) -> None:
        super().__init__(host, port, timeout=timeout, context=tls.context)
        self._tls_of_rest = tls

    def connect(self) -> None:
        super().connect()
        assert isinstance(self.sock, ssl.SSLSocket)
        try:
            self._tls_of_rest.check(self.sock.getpeercert(binary_form=True))
        except ssl.SSLError:
            self.close()
            raise


def _show_certificate(context: ssl.SSLContext, config: Settings) -> None:
    path = _pem(config, security.REST_KEYSTORE)
    if path is None:
        raise CommandError(
            f"{security.REST_AUTHENTICATION_ENABLED.key} is true, so a client shows a certificate: name the PEM file"
            f" that holds it and its key in {security.REST_KEYSTORE.key}."
        )
    password = config.get(security.REST_KEY_PASSWORD) or config.get(security.REST_KEYSTORE_PASSWORD) or ""
    try:
        # A password that is not needed is not asked for; an empty one stops OpenSSL from asking at the terminal.
        context.load_cert_chain(path, password=password)
    except (ssl.SSLError, OSError) as error:
        raise CommandError(
            f"{security.REST_KEYSTORE.key}: {path} gives no certificate with its key: {error}."
        ) from None


def _pem(config: Settings, option: ConfigOption[str | None]) -> str | None:
    path = config.get(option)
    if not path:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise CommandError(f"{option.key}: cannot read {path}: {error.strerror}.") from None
    if b"-----BEGIN" not in content:
        raise CommandError(
            f"{option.key}: {path} is no PEM file; make one with `openssl pkcs12 -in {path} -out {path}.pem`."
        )
    return path
