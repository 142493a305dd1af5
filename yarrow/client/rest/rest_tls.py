"""RestTls: the TLS of REST clients, from security.ssl.rest.*.

Owner: any thread. It decides which servers a client trusts, and never what a request may do.
runtime/security/keystores.py reads files, and its refusals name the option.
"""

from __future__ import annotations

import hashlib
import http.client
import ssl
from dataclasses import dataclass

from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.security.keystores import (
    certificates_as_pem,
    key_and_certificates_as_pem,
    load_pair,
    tls_version,
)


@dataclass(frozen=True, slots=True)
class RestTls:
    """The trusted authorities, and the client's own certificate."""

    context: ssl.SSLContext
    #: Hex SHA-1 of the only accepted certificate; empty = every certificate of the truststore.
    fingerprint: str = ""
    #: Authorities come from the cluster's own truststore.
    own_truststore: bool = False

    @property
    def proves_server(self) -> bool:
        """Whether a trusted server is certainly the intended one, not any owner of a certificate."""
        return bool(self.context.check_hostname or self.fingerprint or self.own_truststore)

    @staticmethod
    def of(config: Settings) -> RestTls:
        """Reads the options. Raises ConfigError with the option whose file or value is unusable."""
        context = ssl.create_default_context(cadata=_trusted(config))
        context.check_hostname = config.get(security.REST_VERIFY_HOSTNAME)
        context.minimum_version = tls_version(config)
        if config.get(security.REST_AUTHENTICATION_ENABLED):
            _show_certificate(context, config)
        fingerprint = config.get(security.REST_CERT_FINGERPRINT) or ""
        own_truststore = bool(config.get(security.REST_TRUSTSTORE))
        return RestTls(context, fingerprint.replace(":", "").lower(), own_truststore)

    def connection(self, host: str, port: int, timeout: float) -> http.client.HTTPSConnection:
        """A connection whose handshake refuses any other server."""
        return _PinnedConnection(self, host, port, timeout)

    def check(self, certificate: bytes | None) -> None:
        """Raises ssl.SSLError for another certificate than the accepted one."""
        # SHA-1 because the option requires it; an attacker would need a second preimage.
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
    if not config.get(security.REST_KEYSTORE):
        raise ConfigError(
            f"{security.REST_AUTHENTICATION_ENABLED.key} is true, so a client shows a certificate: name the"
            f" PKCS12 or PEM file that holds it and its key in {security.REST_KEYSTORE.key}.",
            [security.REST_KEYSTORE.key],
        )
    certificate, key = key_and_certificates_as_pem(
        config, security.REST_KEYSTORE, security.REST_KEYSTORE_PASSWORD, security.REST_KEY_PASSWORD
    )
    load_pair(context, certificate, key)


def _trusted(config: Settings) -> str | None:
    """The authorities of the truststore; None = those of the system."""
    if not config.get(security.REST_TRUSTSTORE):
        return None
    return certificates_as_pem(config, security.REST_TRUSTSTORE, security.REST_TRUSTSTORE_PASSWORD).decode(
        "ascii"
    )
