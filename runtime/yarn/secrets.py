"""The secrets of one application: made by its client, distributed so that each role gets only its own.

Owner: the client's thread that submits. The certificate authority's key is forgotten when `make_secrets` returns. Files
are written with mode 0600 into a folder of mode 0700; nothing of this goes into arguments, environments or logs.
"""

from __future__ import annotations

import datetime
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import msgspec

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.common.ids import IdFactory
from yarrow.runtime.config.options import security, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.roles import Role
from yarrow.runtime.security.certificates import CertificateAuthority
from yarrow.runtime.security.rest_tokens import token_hash
from yarrow.runtime.yarn.application import ContainerSecrets, MasterSecrets
from yarrow.runtime.yarn.gateways import YarnError

_TOKEN_BYTES: Final = 32
#: The name that Skein's two ends expect.
_SKEIN_NAME: Final = "skein-internal"
_VALID_DAYS: Final = 3650
#: Most bytes of a keytab.
_KEYTAB_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class ApplicationSecrets:
    """All secrets of one application; only its client ever holds them together."""

    secret_id: str
    master: PemIdentity = field(repr=False)
    task_executor: PemIdentity = field(repr=False)
    spark_driver: PemIdentity = field(repr=False)
    data_secret: bytes = field(repr=False)
    rest_token: str = field(repr=False)
    #: Certificate and key, as PEM, of Skein's connections to the application.
    skein: tuple[bytes, bytes] = field(repr=False)
    #: The certificate that REST shows.
    rest_identity: PemIdentity = field(default=PemIdentity(), repr=False)
    #: The content of the keytab for the master.
    keytab: bytes = field(default=b"", repr=False)

    def for_master(self, sensitive: Mapping[str, str]) -> MasterSecrets:
        """The secrets of the master: of the token only its hash."""
        return MasterSecrets(
            application_secret_id=self.secret_id,
            identity=self.master,
            data_secret=self.data_secret,
            rest_token_hash=token_hash(self.rest_token),
            sensitive_configuration=dict(sensitive),
            rest_identity=self.rest_identity,
            keytab=self.keytab,
        )

    def for_task_executor(self, sensitive: Mapping[str, str]) -> ContainerSecrets:
        """The secrets of TaskExecutors: nothing by which a client or the master proves itself."""
        return ContainerSecrets(
            application_secret_id=self.secret_id,
            identity=self.task_executor,
            data_secret=self.data_secret,
            sensitive_configuration=dict(sensitive),
        )

    def for_spark_driver(self, sensitive: Mapping[str, str]) -> ContainerSecrets:
        """The secrets of SparkDrivers: they reach BatchJobMasters alone."""
        return ContainerSecrets(
            application_secret_id=self.secret_id,
            identity=self.spark_driver,
            data_secret=self.data_secret,
            sensitive_configuration=dict(sensitive),
        )


def make_secrets(ids: IdFactory, clock: Clock) -> ApplicationSecrets:
    """New secrets for an application that is about to be submitted."""
    secret_id = ids.hex_id()
    authority = CertificateAuthority(secret_id, clock)
    return ApplicationSecrets(
        secret_id=secret_id,
        master=authority.issue(f"{Role.JOB_MANAGER.value} {secret_id}", Role.JOB_MANAGER),
        task_executor=authority.issue(f"{Role.TASK_EXECUTOR.value} {secret_id}", Role.TASK_EXECUTOR),
        spark_driver=authority.issue(f"{Role.SPARK_DRIVER.value} {secret_id}", Role.SPARK_DRIVER),
        data_secret=secrets.token_bytes(_TOKEN_BYTES),
        rest_token=secrets.token_urlsafe(_TOKEN_BYTES),
        skein=skein_pair(clock),
    )


def with_own_certificates(made: ApplicationSecrets, config: Settings) -> ApplicationSecrets:
    """The secrets with the certificates of the user's keystores; nodes need none of the files.

    Raises ConfigError for a keystore that cannot be used.
    """
    from yarrow.runtime.security.keystores import internal_identity, rest_identity

    internal, rest = internal_identity(config), rest_identity(config)
    if internal is not None:
        made = replace(made, master=internal, task_executor=internal, spark_driver=internal)
    return made if rest is None else replace(made, rest_identity=rest)


def with_keytab(made: ApplicationSecrets, config: Settings) -> ApplicationSecrets:
    """The secrets with the user's keytab, by which the master gets new delegation tokens.

    Call it where Hadoop asks for Kerberos. Without a keytab, or where the master may not have or use it, they stay
    as they are. Raises YarnError for a file that cannot be read, or is no keytab by its size.
    """
    path = config.get(security.KERBEROS_KEYTAB)
    # The master renews nothing without mutual TLS.
    switches = (yarn.SHIP_KEYTAB, security.DELEGATION_TOKENS_ENABLED, security.INTERNAL_ENABLED)
    if path is None or not all(map(config.get, switches)):
        return made
    try:
        with open(path, "rb") as file:
            content = file.read(_KEYTAB_BYTES + 1)
    except OSError as error:
        raise YarnError(
            f"{security.KERBEROS_KEYTAB.key} is {path}, which cannot be read: {error.strerror}."
        ) from None
    if len(content) > _KEYTAB_BYTES:
        raise YarnError(
            f"{security.KERBEROS_KEYTAB.key} is {path}, which has more than {_KEYTAB_BYTES >> 20} MiB: name a keytab"
            f" with the keys of {security.KERBEROS_PRINCIPAL.key} alone."
        )
    return replace(made, keytab=content)


def skein_pair(clock: Clock) -> tuple[bytes, bytes]:
    """A self-signed certificate and its key as PEM, in the form in which both ends of Skein's connections use one pair.

    Made here and not by Skein, whose pair ends after a year and takes longer to make.
    """
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, _SKEIN_NAME)])
    now = datetime.datetime.fromtimestamp(clock.epoch_ms() / 1000, datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        # Clocks of two hosts differ.
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=_VALID_DAYS))
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return certificate.public_bytes(encoding), private


def write_private(path: Path, data: bytes) -> None:
    """Writes a file that did not exist and that its owner alone may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
        file.write(data)


def write_secrets(path: Path, content: MasterSecrets | ContainerSecrets) -> None:
    """Writes the secrets of one role."""
    write_private(path, msgspec.msgpack.encode(content))
