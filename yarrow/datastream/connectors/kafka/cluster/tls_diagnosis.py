"""Why TLS to a broker fails, in one sentence: librdkafka says of every bad certificate that it cannot be verified.

Owner: the calling thread; it connects once to each bootstrap server, after a client of librdkafka has failed. Nothing
is sent over the connection.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from typing import Final

from yarrow.datastream.connectors.kafka.cluster.tls_context import tls_context

_CONNECT_SECONDS: Final = 5.0
#: Behind the handshake of TLS 1.3 a broker refuses a client's certificate; one that accepts it waits for a request.
_REFUSAL_SECONDS: Final = 0.5

# X509_V_ERR_* of OpenSSL's x509_vfy.h.
_NOT_YET_VALID: Final = 9
_EXPIRED: Final = 10
_UNTRUSTED: Final = frozenset({2, 18, 19, 20, 21})
_WRONG_NAME: Final = frozenset({62, 64})


def tls_failure(settings: Mapping[str, str]) -> str | None:
    """Why TLS to the bootstrap servers fails, or is missing, and what to do; None if TLS is not the reason.

    Raises KafkaConnectorError if the settings of TLS cannot be used.
    """
    expects_tls = "SSL" in settings.get("security.protocol", "").upper()
    context = tls_context(settings) if expects_tls else ssl._create_unverified_context()
    for server in map(str.strip, settings["bootstrap.servers"].split(",")):
        host, _, port = server.rpartition(":")
        host = host.rpartition("://")[2].strip("[]")
        if not host or not port.isdecimal():
            continue
        try:
            with (
                socket.create_connection((host, int(port)), _CONNECT_SECONDS) as plain,
                context.wrap_socket(plain, server_hostname=host) as secured,
            ):
                if not expects_tls:
                    return _without_tls(server)
                secured.settimeout(_REFUSAL_SECONDS)
                secured.recv(1)
        except ssl.SSLCertVerificationError as error:
            return _of_certificate(server, host, int(port), error, settings)
        except ssl.SSLError as error:
            if expects_tls:
                return _of_alert(server, error, settings)
            if "ALERT" in (error.reason or ""):
                return _without_tls(server)
        except OSError:
            continue
    return None


def _without_tls(server: str) -> str:
    return (
        f"{server} speaks TLS at this port. Set security.protocol to SSL or SASL_SSL, or take its other port"
    )


def _of_certificate(
    server: str, host: str, port: int, error: ssl.SSLCertVerificationError, settings: Mapping[str, str]
) -> str:
    until, issuer, names = _described(host, port)
    match error.verify_code:
        case code if code == _EXPIRED:
            return f"the certificate of {server} has expired{until}. Renew it on the broker"
        case code if code == _NOT_YET_VALID:
            return f"the certificate of {server} is not valid yet. Compare the clocks of both machines"
        case code if code in _WRONG_NAME:
            return (
                f"the certificate of {server} is that of {names}, not of {host}. Name the broker so in"
                " bootstrap.servers and its advertised.listeners, or give it another certificate"
            )
        case code if code in _UNTRUSTED:
            trusted = settings.get("ssl.ca.location", "the given certificates of authorities")
            return (
                f"the certificate of {server} is not trusted: its issuer {issuer} is not in {trusted}. Set"
                " ssl.ca.location, or ssl.truststore.location in PEM, to the certificate of that authority"
            )
    return f"the certificate of {server} is refused: {error.verify_message}"


def _of_alert(server: str, error: ssl.SSLError, settings: Mapping[str, str]) -> str:
    reason = error.reason or str(error)
    shows_one = any(key.startswith(("ssl.certificate.", "ssl.keystore.")) for key in settings)
    if "ALERT" in reason and not shows_one:
        return (
            f"{server} wants the certificate of a client ({reason}). Set ssl.certificate.location and"
            " ssl.key.location, or a keystore in PEM or PKCS12"
        )
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return (
            f"{server} does not accept the client's certificate ({reason}). Take one that the broker trusts"
        )
    if any(part in reason for part in ("WRONG_VERSION_NUMBER", "RECORD_LAYER", "UNEXPECTED_EOF")):
        return (
            f"{server} does not speak TLS at this port. Take its port for TLS, or another security.protocol"
        )
    return f"TLS with {server} fails: {reason}"


def _described(host: str, port: int) -> tuple[str, str, str]:
    """What the certificate of a broker tells: its end with a preposition, its issuer and the names it is for."""
    from cryptography import x509

    try:
        found = x509.load_pem_x509_certificate(
            ssl.get_server_certificate((host, port), timeout=_CONNECT_SECONDS).encode()
        )
    except (OSError, ValueError):
        return "", "of the broker", "another host"
    try:
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        shown = [
            *names.get_values_for_type(x509.DNSName),
            *map(str, names.get_values_for_type(x509.IPAddress)),
        ]
    except x509.ExtensionNotFound:
        shown = [found.subject.rfc4514_string()]
    until = f" on {found.not_valid_after_utc:%Y-%m-%d %H:%M} UTC"
    return until, f"({found.issuer.rfc4514_string()})", " and ".join(shown)
