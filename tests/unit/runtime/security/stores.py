"""Keystores and truststores as a user would bring them."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.security.certificates import CertificateAuthority

PASSWORD = "pw-b5c9e1"


class Stores:
    """A certificate of one authority in a keystore, and the authority in a truststore, in a folder."""

    def __init__(self, folder: Path, name: str = "users", password: str = PASSWORD) -> None:
        self.identity = CertificateAuthority(name, SystemClock()).issue(name)
        key: Any = serialization.load_pem_private_key(self.identity.private_key, None)
        certificate = x509.load_pem_x509_certificate(self.identity.certificate)
        authority = x509.load_pem_x509_certificate(self.identity.ca_certificate)
        encryption = serialization.BestAvailableEncryption(password.encode())
        self.keystore = folder / f"{name}.keystore.p12"
        self.keystore.write_bytes(
            pkcs12.serialize_key_and_certificates(name.encode(), key, certificate, None, encryption)
        )
        self.truststore = folder / f"{name}.truststore.p12"
        self.truststore.write_bytes(
            pkcs12.serialize_key_and_certificates(None, None, None, [authority], encryption)
        )
        locked = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        self.pem_keystore = folder / f"{name}.keystore.pem"
        self.pem_keystore.write_bytes(self.identity.certificate + locked)
        self.pem_truststore = folder / f"{name}.truststore.pem"
        self.pem_truststore.write_bytes(self.identity.ca_certificate)
        der = certificate.public_bytes(serialization.Encoding.DER)
        self.fingerprint = hashlib.sha1(der).hexdigest()

    def settings(self, part: str, password: str = PASSWORD) -> dict[str, str]:
        """The keys of `part` (internal or rest) that name them."""
        prefix = f"security.ssl.{part}."
        return {
            f"{prefix}keystore": str(self.keystore),
            f"{prefix}keystore-password": password,
            f"{prefix}truststore": str(self.truststore),
            f"{prefix}truststore-password": password,
        }
