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
from yarrow.runtime.yarn.application import MasterSecrets
from yarrow.runtime.yarn.secrets import ApplicationSecrets, make_secrets, write_private, write_secrets


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
