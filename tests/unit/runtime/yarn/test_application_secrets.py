"""Who gets which secret of an application, and how it is written."""

from __future__ import annotations

import hashlib
import stat
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import MasterSecrets
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.secrets import (
    ApplicationSecrets,
    make_secrets,
    with_keytab,
    write_private,
    write_secrets,
)


@pytest.fixture(scope="module")
def secrets() -> ApplicationSecrets:
    return make_secrets(RandomIdFactory(), SystemClock())


def test_the_master_cannot_tell_the_token(secrets: ApplicationSecrets) -> None:
    given = secrets.for_master({"a.password": "x"})
    assert given.rest_token_hash == hashlib.sha256(secrets.rest_token.encode()).digest()
    assert secrets.rest_token.encode() not in msgspec.msgpack.encode(given)
    assert given.sensitive_configuration == {"a.password": "x"}


def test_a_task_executor_has_no_key_of_the_master_and_no_token(secrets: ApplicationSecrets) -> None:
    given = msgspec.msgpack.encode(secrets.for_task_executor({}))
    assert secrets.master.private_key not in given
    assert secrets.rest_token.encode() not in given
    assert hashlib.sha256(secrets.rest_token.encode()).digest() not in given
    assert secrets.skein[1] not in given


def test_certificates_name_their_role_and_have_one_authority(secrets: ApplicationSecrets) -> None:
    master = x509.load_pem_x509_certificate(secrets.master.certificate)
    worker = x509.load_pem_x509_certificate(secrets.task_executor.certificate)
    assert "jobmanager" in master.subject.rfc4514_string()
    assert "taskexecutor" in worker.subject.rfc4514_string()
    assert secrets.master.ca_certificate == secrets.task_executor.ca_certificate
    authority = x509.load_pem_x509_certificate(secrets.master.ca_certificate)
    master.verify_directly_issued_by(authority)
    worker.verify_directly_issued_by(authority)


def test_nothing_is_shared_between_applications(secrets: ApplicationSecrets) -> None:
    other = make_secrets(RandomIdFactory(), SystemClock())
    assert other.rest_token != secrets.rest_token
    assert other.data_secret != secrets.data_secret
    assert other.skein != secrets.skein
    assert other.master.ca_certificate != secrets.master.ca_certificate


def test_secrets_are_not_shown(secrets: ApplicationSecrets) -> None:
    shown = repr(secrets)
    assert secrets.rest_token not in shown
    assert "PRIVATE KEY" not in shown


def test_files_are_new_and_private(secrets: ApplicationSecrets, tmp_path: Path) -> None:
    path = tmp_path / "secret"
    write_secrets(path, secrets.for_master({}))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert msgspec.msgpack.decode(path.read_bytes(), type=MasterSecrets) == secrets.for_master({})
    with pytest.raises(FileExistsError):
        write_private(path, b"")


KEYTAB = "security.kerberos.login.keytab"


@pytest.mark.parametrize(
    ("settings", "is_sent"),
    [
        ({}, True),
        ({"yarn.security.kerberos.ship-local-keytab": "false"}, False),
        ({"security.delegation.tokens.enabled": "false"}, False),
        # The master then refuses to renew: others could read new tokens on the network.
        ({"security.ssl.internal.enabled": "false"}, False),
    ],
)
def test_the_keytab_goes_to_a_master_that_uses_it_and_to_nobody_else(
    settings: dict[str, str], is_sent: bool, secrets: ApplicationSecrets, tmp_path: Path
) -> None:
    path = tmp_path / "me.keytab"
    path.write_bytes(b"my keys")
    made = with_keytab(secrets, Settings({KEYTAB: str(path), **settings}))
    assert made.for_master({}).keytab == (b"my keys" if is_sent else b"")
    for given in (made.for_task_executor({}), made.for_spark_driver({})):
        assert b"my keys" not in msgspec.msgpack.encode(given)
    assert "my keys" not in repr(made)


def test_a_file_that_is_no_keytab_is_named(secrets: ApplicationSecrets, tmp_path: Path) -> None:
    assert with_keytab(secrets, Settings()) is secrets
    path = tmp_path / "large"
    path.write_bytes(bytes(1 << 20))
    assert len(with_keytab(secrets, Settings({KEYTAB: str(path)})).keytab) == 1 << 20
    path.write_bytes(bytes((1 << 20) + 1))
    with pytest.raises(YarnError, match="large, which has more than 1 MiB"):
        with_keytab(secrets, Settings({KEYTAB: str(path)}))
    with pytest.raises(YarnError, match="none, which cannot be read: No such file"):
        with_keytab(secrets, Settings({KEYTAB: str(tmp_path / "none")}))
