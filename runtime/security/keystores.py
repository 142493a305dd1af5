"""Keys and certificates of the user's own, from PKCS12 or PEM files that the configuration names.

Owner: the main thread of a process that starts; blocking. Raises ConfigError that names the key whose file or password
will not do, before anything is started. No password and no key is ever part of a message. `cryptography` is imported on
first use.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from yarrow.runtime.config.options import security
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.config.values.option import EngineOption
from yarrow.runtime.rpc.bootstrap import PemIdentity

Text = EngineOption[str | None]

_PRIVATE_KEY: Final = re.compile(rb"-----BEGIN ([A-Z ]*PRIVATE KEY)-----.*?-----END \1-----", re.DOTALL)
#: The first bytes of a Java keystore of the old type; nothing but Java reads one.
_JKS: Final = b"\xfe\xed\xfe\xed"
_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def internal_identity(config: Settings) -> PemIdentity | None:
    """The identity that security.ssl.internal.* name, for all processes alike; None = certificates are made.

    Such an identity names no role: whoever holds it is master and TaskExecutor. With a fingerprint, the certificate
    that has it is the only one that is trusted.
    """
    stores = (security.INTERNAL_KEYSTORE, security.INTERNAL_TRUSTSTORE)
    missing = [option.key for option in stores if not config.get(option)]
    if not config.get(security.INTERNAL_ENABLED) or len(missing) == len(stores):
        return None
    if missing:
        raise ConfigError(
            f"{missing[0]} is not set, but {next(o.key for o in stores if o.key not in missing)} is: processes both"
            " show a certificate and check one, so set both or neither.",
            [option.key for option in stores],
        )
    chain, key = key_and_certificates(
        config,
        security.INTERNAL_KEYSTORE,
        security.INTERNAL_KEYSTORE_PASSWORD,
        security.INTERNAL_KEY_PASSWORD,
    )
    trusted = certificates(config, security.INTERNAL_TRUSTSTORE, security.INTERNAL_TRUSTSTORE_PASSWORD)
    fingerprint = config.get(security.INTERNAL_CERT_FINGERPRINT)
    if fingerprint:
        trusted = _pinned([*trusted, *chain], fingerprint)
    return PemIdentity(
        ca_certificate=_pem(trusted), certificate=_pem(chain), private_key=key, server_name=_name_of(chain[0])
    )


def rest_identity(config: Settings) -> PemIdentity | None:
    """The identity of REST, and the authorities of its clients (none = clients show nothing); None = no TLS."""
    if not config.get(security.REST_ENABLED):
        return None
    chain, key = key_and_certificates(
        config, security.REST_KEYSTORE, security.REST_KEYSTORE_PASSWORD, security.REST_KEY_PASSWORD
    )
    tls_version(config)
    trusted: Sequence[Any] = ()
    if config.get(security.REST_AUTHENTICATION_ENABLED):
        trusted = certificates(config, security.REST_TRUSTSTORE, security.REST_TRUSTSTORE_PASSWORD)
    return PemIdentity(ca_certificate=_pem(trusted), certificate=_pem(chain), private_key=key)


def rest_server_context(identity: PemIdentity, config: Settings) -> ssl.SSLContext:
    """The TLS context of the REST server for the result of `rest_identity`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = tls_version(config)
    load_pair(context, identity.certificate, identity.private_key)
    if identity.ca_certificate:
        context.load_verify_locations(cadata=identity.ca_certificate.decode("ascii"))
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def load_pair(
    context: ssl.SSLContext, certificate: bytes, private_key: bytes, directory: str | None = None
) -> None:
    """Has a context show a certificate; the key is in a private file for that moment, for nothing else is read."""
    with tempfile.NamedTemporaryFile(dir=directory) as pair:
        pair.write(certificate + b"\n" + private_key)
        pair.flush()
        context.load_cert_chain(pair.name)


def tls_version(config: Settings) -> ssl.TLSVersion:
    """security.ssl.protocol: the oldest version that is accepted."""
    text = config.get(security.PROTOCOL)
    if text not in _VERSIONS:
        raise ConfigError(
            f"{security.PROTOCOL.key} is {text!r}: expected {' or '.join(_VERSIONS)}.",
            [security.PROTOCOL.key],
        )
    return _VERSIONS[text]


def key_and_certificates(
    config: Settings, store: Text, store_password: Text, key_password: Text
) -> tuple[Sequence[Any], bytes]:
    """The certificate of a keystore with its chain, and its key as PEM without a password."""
    from cryptography.hazmat.primitives import serialization

    data = _content(config, store)
    passwords = [config.get(key_password), config.get(store_password)]
    if b"-----BEGIN" in data:
        key = _key_of_pem(data, passwords, config, store, key_password)
        chain = _certificates_of_pem(data, config, store)
    else:
        key, first, more = _pkcs12(data, passwords[::-1], config, store, store_password)
        chain = [first, *more] if first is not None else []
    if key is None or not chain:
        raise _refusal(config, store, "it holds no private key with its certificate")
    if key.public_key() != chain[0].public_key():
        raise _refusal(config, store, "its first certificate is not that of its private key")
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return chain, private


def certificates(config: Settings, store: Text, store_password: Text) -> Sequence[Any]:
    """The certificates of a truststore; at least one."""
    data = _content(config, store)
    if b"-----BEGIN" in data:
        found = _certificates_of_pem(data, config, store)
    else:
        _, first, more = _pkcs12(data, [config.get(store_password)], config, store, store_password)
        found = [*([first] if first is not None else []), *more]
    if not found:
        raise _refusal(config, store, "it holds no certificate")
    return found


def certificates_as_pem(config: Settings, store: Text, store_password: Text) -> bytes:
    """The same as PEM."""
    return _pem(certificates(config, store, store_password))


def key_and_certificates_as_pem(
    config: Settings, store: Text, store_password: Text, key_password: Text
) -> tuple[bytes, bytes]:
    """Certificate (with its chain) and key of a keystore as PEM."""
    chain, key = key_and_certificates(config, store, store_password, key_password)
    return _pem(chain), key


def _content(config: Settings, store: Text) -> bytes:
    path = config.get(store)
    if not path:
        raise ConfigError(f"{store.key} is not set: name a PKCS12 or PEM file.", [store.key])
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"{store.key}: cannot read {path}: {error.strerror}.", [store.key]) from None
    if data.startswith(_JKS):
        raise _refusal(
            config,
            store,
            "it is a JKS keystore; convert it with `keytool -importkeystore -deststoretype pkcs12`",
        )
    return data


def _pkcs12(
    data: bytes, passwords: Sequence[str | None], config: Settings, store: Text, store_password: Text
) -> tuple[Any, Any, Sequence[Any]]:
    from cryptography.hazmat.primitives.serialization import pkcs12

    given: list[bytes | None] = [password.encode() for password in passwords if password]
    for password in given or [b"", None]:
        try:
            return pkcs12.load_key_and_certificates(data, password)
        except (ValueError, TypeError):
            continue
    raise _refusal(
        config, store, f"it is neither PEM nor a PKCS12 file that the password in {store_password.key} opens"
    )


def _key_of_pem(
    data: bytes, passwords: Sequence[str | None], config: Settings, store: Text, key_password: Text
) -> Any:
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    found = _PRIVATE_KEY.search(data)
    if found is None:
        return None
    # A key without a password is not asked for one.
    for password in (*(password.encode() for password in passwords if password), None):
        try:
            return load_pem_private_key(found[0], password)
        except (ValueError, TypeError):
            continue
    raise _refusal(config, store, f"its private key is not opened by the password in {key_password.key}")


def _certificates_of_pem(data: bytes, config: Settings, store: Text) -> Sequence[Any]:
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(data)
    except ValueError:
        raise _refusal(config, store, "it holds no certificate") from None


def _refusal(config: Settings, store: Text, why: str) -> ConfigError:
    return ConfigError(f"{store.key}: {config.get(store)} cannot be used: {why}.", [store.key])


def _pinned(found: Sequence[Any], fingerprint: str) -> Sequence[Any]:
    from cryptography.hazmat.primitives.serialization import Encoding

    wanted = fingerprint.replace(":", "").strip().lower()
    for certificate in found:
        # SHA-1 because the option says so; what an attacker would need is a second preimage.
        der = certificate.public_bytes(Encoding.DER)
        if hashlib.sha1(der, usedforsecurity=False).hexdigest() == wanted:
            return [certificate]
    raise ConfigError(
        f"{security.INTERNAL_CERT_FINGERPRINT.key}: no certificate in {security.INTERNAL_KEYSTORE.key} or"
        f" {security.INTERNAL_TRUSTSTORE.key} has the SHA-1 fingerprint {fingerprint}.",
        [security.INTERNAL_CERT_FINGERPRINT.key],
    )


def _name_of(certificate: Any) -> str:
    """The name by which a peer is checked: a DNS name, an address, or the common name."""
    from cryptography import x509

    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        names = None
    if names is not None:
        found = names.get_values_for_type(x509.DNSName) or names.get_values_for_type(x509.IPAddress)
        if found:
            return str(found[0])
    common = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    if not common:
        raise ConfigError(
            f"{security.INTERNAL_KEYSTORE.key}: its certificate has neither a DNS name nor a common name.",
            [security.INTERNAL_KEYSTORE.key],
        )
    return str(common[0].value)


def _pem(found: Sequence[Any]) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    return b"".join(certificate.public_bytes(Encoding.PEM) for certificate in found)
