"""One certificate authority for each application, and the identities it issues.

Whoever holds such an identity belongs to the application.

Owner: any thread; CPU only, no files. The authority's key never leaves the process that made it; processes
get a PemIdentity through their bootstrap. `cryptography` is imported on first use: most imports never need
it.
"""

from __future__ import annotations

import datetime
from typing import Any

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.roles import SERVER_NAME, Role

_VALID_DAYS = 3650


class CertificateAuthority:
    """The certificate authority of one application."""

    def __init__(self, application_id: str, clock: Clock) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec

        self._clock = clock
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(f"Yarrow application {application_id}"[:64])
        builder = self._builder(self._name, self._key.public_key())
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        usage = _key_usage(certificate_authority=True)
        builder = builder.add_extension(constraints, critical=True).add_extension(usage, critical=True)
        self._certificate = builder.sign(self._key, hashes.SHA256())

    def issue(self, name: str, role: Role | None = None) -> PemIdentity:
        """A new key and certificate, for both ends of a connection; `name` shows in it, the role is proved by it."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import ExtendedKeyUsageOID

        key = ec.generate_private_key(ec.SECP256R1())
        names = [SERVER_NAME] if role is None else [SERVER_NAME, role.server_name]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        certificate = (
            self._builder(_name(name[:64]), key.public_key())
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(one) for one in names]), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(certificate_authority=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(both), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        encoding = serialization.Encoding.PEM
        return PemIdentity(
            ca_certificate=self._certificate.public_bytes(encoding),
            certificate=certificate.public_bytes(encoding),
            private_key=key.private_bytes(
                encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            ),
            role=role,
        )

    def _builder(self, subject: Any, public_key: Any) -> Any:
        from cryptography import x509

        now = datetime.datetime.fromtimestamp(self._clock.epoch_ms() / 1000, datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            # Clocks of two hosts differ.
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        )


def _name(text: str) -> Any:
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(certificate_authority: bool) -> Any:
    from cryptography import x509

    return x509.KeyUsage(
        digital_signature=not certificate_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=not certificate_authority,
        key_cert_sign=certificate_authority,
        crl_sign=certificate_authority,
        encipher_only=False,
        decipher_only=False,
    )
