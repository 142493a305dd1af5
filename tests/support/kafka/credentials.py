"""What brokers and clients of the tests show each other: certificates, passwords and the key of tokens.

Owner: the caller's thread. The files lie in the folder of the cluster and are made once. One authority signs the
certificates of brokers and clients; a stranger's certificate is signed by another one.
"""

from __future__ import annotations

import base64
import datetime
import ipaddress
import json
import time
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import pkcs12

from tests.support.kafka.layout import LOOPBACK

#: Who may log in by a password; the password of SCRAM is another than that of PLAIN.
USER, PASSWORD, SCRAM_PASSWORD = "tests", "password-of-tests", "scram-password-of-tests"
#: The password of the client's encrypted key, and of its keystore.
KEY_PASSWORD = "key-password-of-tests"
#: Who gets tokens at the endpoint, and what the broker expects of them.
CLIENT_ID, CLIENT_SECRET = "client-of-tests", "client-secret-of-tests"
ISSUER, AUDIENCE = "https://tokens.example", "kafka-of-tests"
_KEY_ID = "1"
_CLOCKS = datetime.timedelta(days=1)


class Credentials:
    """The files of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: The authority of brokers and clients, and another one.
        self.authority, self.other_authority = folder / "ca.pem", folder / "other-ca.pem"
        #: A client's certificate and key in files of their own, the key encrypted; both in a store; the same in PKCS12.
        self.certificate, self.key = folder / "client.crt", folder / "client.key"
        self.store, self.keystore = folder / "client.pem", folder / "client.p12"
        #: Stores of clients whom the broker does not accept.
        self.expired_store, self.stranger_store = folder / "client-expired.pem", folder / "stranger.pem"
        #: The public key of tokens, for the broker; the private one, for the endpoint.
        self.token_keys, self._token_key = folder / "jwks.json", folder / "token.key"

    def broker_store(self, listener: str) -> Path:
        """Key and certificate that the broker shows at a listener."""
        special = listener if listener in {"expired", "misnamed"} else "good"
        return self.folder / f"broker-{special}.pem"

    def make(self) -> None:
        """Write all files, if they are not there."""
        if self._token_key.exists():
            return
        self.folder.mkdir(mode=0o700, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        later, past = now + datetime.timedelta(days=3650), now - _CLOCKS / 2
        ours, other = _Authority("tests"), _Authority("strangers")
        self.authority.write_bytes(ours.pem)
        self.other_authority.write_bytes(other.pem)
        here: list[x509.GeneralName] = [
            x509.DNSName("localhost"),
            x509.IPAddress(ipaddress.ip_address(LOOPBACK)),
        ]
        elsewhere: list[x509.GeneralName] = [x509.DNSName("elsewhere.example")]
        for listener, names, until in (
            ("good", here, later),
            ("expired", here, past),
            ("misnamed", elsewhere, later),
        ):
            pair = ours.issue(f"broker {listener}", names, until)
            (self.folder / f"broker-{listener}.pem").write_bytes(_store(*pair))
        certificate, key = ours.issue("client", here, later)
        self.store.write_bytes(_store(certificate, key))
        self.certificate.write_bytes(_pem(certificate))
        encryption = serialization.BestAvailableEncryption(KEY_PASSWORD.encode())
        self.key.write_bytes(_key_pem(key, encryption))
        self.keystore.write_bytes(
            pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption)
        )
        self.expired_store.write_bytes(_store(*ours.issue("client", here, past)))
        self.stranger_store.write_bytes(_store(*other.issue("stranger", here, later)))
        token_key = ec.generate_private_key(ec.SECP256R1())
        self.token_keys.write_text(json.dumps({"keys": [_jwk(token_key.public_key())]}), "utf-8")
        self._token_key.write_bytes(_key_pem(token_key, serialization.NoEncryption()))

    def token(self, seconds: float = 3600.0) -> str:
        """A signed token (JWT, ES256) that the broker accepts for so long."""
        key = serialization.load_pem_private_key(self._token_key.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        now = int(time.time())
        claims = {"iss": ISSUER, "sub": USER, "aud": AUDIENCE, "iat": now, "exp": now + int(seconds)}
        parts = ({"alg": "ES256", "kid": _KEY_ID, "typ": "JWT"}, claims)
        text = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        r, s = utils.decode_dss_signature(key.sign(text.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{text}.{_base64(r.to_bytes(32, 'big') + s.to_bytes(32, 'big'))}"


class _Authority:
    def __init__(self, name: str) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(f"authority of {name}")
        self._certificate = self._builder(self._name, self._key.public_key(), None).sign(
            self._key, hashes.SHA256()
        )
        self.pem = _pem(self._certificate)

    def issue(
        self, name: str, names: list[x509.GeneralName], until: datetime.datetime
    ) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(_named(name), key.public_key(), until)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256()), key

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, until: datetime.datetime | None
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - _CLOCKS)
            .not_valid_after(until or now + datetime.timedelta(days=3650))
            .add_extension(x509.BasicConstraints(ca=until is None, path_length=None), critical=True)
        )


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, encryption: serialization.KeySerializationEncryption) -> bytes:
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)


def _store(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> bytes:
    return _key_pem(key, serialization.NoEncryption()) + _pem(certificate)


def _jwk(key: ec.EllipticCurvePublicKey) -> dict[str, Any]:
    numbers = key.public_numbers()
    point = {name: _base64(value.to_bytes(32, "big")) for name, value in (("x", numbers.x), ("y", numbers.y))}
    return {"kty": "EC", "crv": "P-256", "alg": "ES256", "use": "sig", "kid": _KEY_ID, **point}


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
