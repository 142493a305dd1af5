"""TLS of the protocol library: what a connection trusts and shows, made of librdkafka's settings.

Owner: the calling thread; it reads files of certificates on the machine where it runs. A key that is given as a text is
in no file: OpenSSL reads it from memory that has no name. Must not connect.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from yarrow.datastream.connectors.kafka.cluster.kafka_errors import KafkaCredentialsError
from yarrow.runtime.common.clock import SystemClock


class _Pair(NamedTuple):
    """A client's certificate with its chain, and its key, as PEM."""

    certificate: bytes
    key: bytes
    password: str | None
    #: The property that names the certificate.
    source: str


def tls_context(settings: Mapping[str, str]) -> ssl.SSLContext:
    """What TLS trusts and shows. Raises KafkaCredentialsError naming the property that cannot be used."""
    try:
        context = ssl.create_default_context(
            cafile=settings.get("ssl.ca.location"), cadata=settings.get("ssl.ca.pem")
        )
        context.check_hostname = settings.get("ssl.endpoint.identification.algorithm", "https") != "none"
        if "ssl.cipher.suites" in settings:
            context.set_ciphers(settings["ssl.cipher.suites"])
        if "ssl.crl.location" in settings:
            context.load_verify_locations(settings["ssl.crl.location"])
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
    except (OSError, ssl.SSLError) as error:
        raise KafkaCredentialsError(f"Kafka: its ssl properties cannot be used: {error}") from error
    pair = _client_pair(settings)
    if pair is not None:
        _show(context, pair)
    return context


def check_client_certificate(settings: Mapping[str, str]) -> None:
    """Raise KafkaCredentialsError if the client's certificate cannot be used now: a broker would only hang up."""
    from cryptography import x509

    pair = _client_pair(settings)
    if pair is None:
        return
    try:
        certificate = x509.load_pem_x509_certificate(pair.certificate)
    except ValueError:
        raise KafkaCredentialsError(f"Kafka: {pair.source} holds no certificate in PEM") from None
    _show(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), pair)
    now = datetime.datetime.fromtimestamp(SystemClock().epoch_ms() / 1000, datetime.UTC)
    if certificate.not_valid_after_utc < now:
        raise KafkaCredentialsError(
            f"Kafka: the client's certificate of {pair.source} has expired on"
            f" {certificate.not_valid_after_utc:%Y-%m-%d %H:%M} UTC. Renew it on every machine where the job runs"
        )


def _client_pair(settings: Mapping[str, str]) -> _Pair | None:
    if "ssl.keystore.location" in settings:
        return _of_pkcs12(settings["ssl.keystore.location"], settings.get("ssl.keystore.password"))
    found = {}
    source = ""
    for part in ("certificate", "key"):
        if (text := settings.get(f"ssl.{part}.pem")) is not None:
            found[part], name = text.encode(), f"ssl.{part}.pem"
        elif (path := settings.get(f"ssl.{part}.location")) is not None:
            found[part], name = _content(f"ssl.{part}.location", path), f"ssl.{part}.location={path}"
        else:
            return None
        source = source or name
    return _Pair(found["certificate"], found["key"], settings.get("ssl.key.password"), source)


def _of_pkcs12(path: str, password: str | None) -> _Pair:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

    data = _content("ssl.keystore.location", path)
    try:
        key, certificate, more = pkcs12.load_key_and_certificates(data, (password or "").encode() or None)
    except (ValueError, TypeError):
        raise KafkaCredentialsError(
            f"Kafka: ssl.keystore.location={path} is no PKCS12 file that ssl.keystore.password opens"
        ) from None
    if key is None or certificate is None:
        raise KafkaCredentialsError(f"Kafka: ssl.keystore.location={path} holds no key with its certificate")
    chain = b"".join(one.public_bytes(Encoding.PEM) for one in (certificate, *more))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return _Pair(chain, private, None, f"ssl.keystore.location={path}")


def _content(key: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise KafkaCredentialsError(
            f"Kafka: {key}: {path} cannot be read on the machine where the source or sink runs: {error.strerror}"
        ) from None


def _show(context: ssl.SSLContext, pair: _Pair) -> None:
    """Have connections show a certificate. Raises KafkaCredentialsError if its key cannot be used."""
    with os.fdopen(os.memfd_create("client certificate", os.MFD_CLOEXEC), "wb") as memory:
        memory.write(pair.certificate + b"\n" + pair.key)
        memory.flush()
        try:
            # Without a password OpenSSL would ask at the terminal.
            context.load_cert_chain(f"/proc/self/fd/{memory.fileno()}", password=lambda: pair.password or "")
        except (OSError, ssl.SSLError) as error:
            raise KafkaCredentialsError(
                f"Kafka: the client's certificate and key of {pair.source} cannot be used: {error}. Check that the key"
                " is that of the certificate, and that ssl.key.password opens it"
            ) from None
