"""Keystores of the user: what is read of them, what a cluster with them lets in, and how a bad one is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from tests.unit.runtime.rpc.echo import ECHO, Echo
from tests.unit.runtime.rpc.loops import run
from tests.unit.runtime.security.stores import PASSWORD, Stores
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.ids import RandomIdFactory
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import ConfigError
from yarrow.runtime.rpc.bootstrap import PemIdentity
from yarrow.runtime.rpc.errors import RpcUnavailableError
from yarrow.runtime.rpc.grpc_transport import GrpcSettings, GrpcTransport
from yarrow.runtime.rpc.service import RpcService
from yarrow.runtime.security.certificates import CertificateAuthority
from yarrow.runtime.security.keystores import internal_identity, rest_identity, tls_version
from yarrow.runtime.yarn.secrets import make_secrets, with_own_certificates


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    return Stores(tmp_path)


def identity_of(values: dict[str, str]) -> PemIdentity:
    identity = internal_identity(Settings(values))
    assert identity is not None
    return identity


def hears(server: PemIdentity, client: PemIdentity) -> bool:
    """Whether a process with one identity answers one with the other."""

    async def body() -> bool:
        settings = GrpcSettings(application_id="app", bind_host="127.0.0.1", identity=server)
        serves = RpcService([GrpcTransport(settings)])
        calls = RpcService([GrpcTransport(GrpcSettings(application_id="app", identity=client))])
        await serves.start()
        endpoint = Echo()
        await endpoint.start()
        echo = calls.connect(serves.serve(ECHO, endpoint), ECHO)
        try:
            return await echo.echo("x") == "x"
        except RpcUnavailableError:
            return False
        finally:
            await endpoint.stop()
            await calls.stop()
            await serves.stop()

    return run(body())


def same_key(one: bytes, other: bytes) -> bool:
    first, second = (serialization.load_pem_private_key(pem, None).public_key() for pem in (one, other))
    return first == second


def test_pkcs12_and_pem_hold_the_same(stores: Stores) -> None:
    from_pkcs12 = identity_of(stores.settings("internal"))
    pem = {
        "security.ssl.internal.keystore": str(stores.pem_keystore),
        "security.ssl.internal.key-password": PASSWORD,
        "security.ssl.internal.truststore": str(stores.pem_truststore),
    }
    assert identity_of(pem) == from_pkcs12
    assert from_pkcs12.certificate == stores.identity.certificate
    assert from_pkcs12.ca_certificate == stores.identity.ca_certificate
    assert same_key(from_pkcs12.private_key, stores.identity.private_key)
    assert from_pkcs12.server_name == "yarrow.internal"
    assert from_pkcs12.role is None


def test_the_common_keys_of_flink_are_read(stores: Stores) -> None:
    values = {
        key.replace("ssl.internal.", "ssl."): value for key, value in stores.settings("internal").items()
    }
    assert identity_of(values) == identity_of(stores.settings("internal"))


def test_nothing_is_read_without_keystores_or_without_tls(stores: Stores) -> None:
    assert internal_identity(Settings({})) is None
    off = {**stores.settings("internal", "wrong"), "security.ssl.internal.enabled": "false"}
    assert internal_identity(Settings(off)) is None
    assert rest_identity(Settings(stores.settings("rest", "wrong"))) is None


def test_processes_with_one_keystore_hear_each_other_and_no_stranger(stores: Stores, tmp_path: Path) -> None:
    own = identity_of(stores.settings("internal"))
    stranger = identity_of(Stores(tmp_path, "strangers").settings("internal"))
    assert hears(own, own)
    assert not hears(own, stranger)
    assert not hears(stranger, own)


def test_a_fingerprint_shuts_out_others_of_the_same_authority(tmp_path: Path) -> None:
    authority = CertificateAuthority("common", SystemClock())
    own, other = authority.issue("own"), authority.issue("other")
    folder = tmp_path / "pem"
    folder.mkdir()
    for name, identity in (("own", own), ("other", other)):
        (folder / name).write_bytes(identity.certificate + identity.private_key)
    (folder / "trust").write_bytes(own.ca_certificate)

    def values(name: str, fingerprint: str = "") -> dict[str, str]:
        found = {
            "security.ssl.internal.keystore": str(folder / name),
            "security.ssl.internal.truststore": str(folder / "trust"),
        }
        return {**found, "security.ssl.internal.cert.fingerprint": fingerprint} if fingerprint else found

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    print_of_own = x509.load_pem_x509_certificate(own.certificate).fingerprint(hashes.SHA1()).hex(":").upper()
    pinned = identity_of(values("own", print_of_own))
    assert hears(pinned, pinned)
    assert hears(identity_of(values("own")), identity_of(values("other")))
    assert not hears(pinned, identity_of(values("other")))
    assert not hears(identity_of(values("other")), pinned)
    with pytest.raises(ConfigError, match=r"security\.ssl\.internal\.cert\.fingerprint"):
        internal_identity(Settings(values("own", "00" * 20)))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"keystore": "{folder}/absent"}, r"{part}\.keystore: cannot read .*absent"),
        (
            {"keystore-password": "pw-wrong"},
            r"{part}\.keystore: .*password in security\.ssl\.{part}\.keystore-password",
        ),
        ({"keystore": "{folder}/garbage"}, r"{part}\.keystore: .*neither PEM nor a PKCS12"),
        ({"keystore": "{folder}/java"}, r"{part}\.keystore: .*keytool"),
        ({"keystore": "{folder}/users.truststore.pem"}, r"{part}\.keystore: .*no private key"),
        ({"truststore": "{folder}/absent"}, r"{part}\.truststore: cannot read .*absent"),
        ({"truststore-password": "pw-wrong"}, r"{part}\.truststore: .*{part}\.truststore-password"),
    ],
)
@pytest.mark.parametrize("part", ["internal", "rest"])
def test_what_will_not_do_is_named_and_no_password_shown(
    part: str, changed: dict[str, str], message: str, stores: Stores, tmp_path: Path
) -> None:
    (tmp_path / "garbage").write_bytes(b"garbage")
    (tmp_path / "java").write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    values = stores.settings(part)
    for name, value in changed.items():
        values[f"security.ssl.{part}.{name}"] = value.replace("{folder}", str(tmp_path))
    values |= {"security.ssl.rest.enabled": "true", "security.ssl.rest.authentication-enabled": "true"}
    read = internal_identity if part == "internal" else rest_identity
    with pytest.raises(ConfigError, match=message.replace("{part}", part)) as refused:
        read(Settings(values))
    assert PASSWORD not in str(refused.value) and "pw-wrong" not in str(refused.value)


def test_half_of_the_stores_is_refused(stores: Stores) -> None:
    values = {"security.ssl.internal.keystore": str(stores.keystore)}
    with pytest.raises(ConfigError, match=r"security\.ssl\.internal\.truststore is not set"):
        internal_identity(Settings(values))
    with pytest.raises(ConfigError, match=r"security\.ssl\.rest\.keystore is not set"):
        rest_identity(Settings({"security.ssl.rest.enabled": "true"}))


def test_an_unknown_version_of_tls_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"security\.ssl\.protocol is 'SSLv3'"):
        tls_version(Settings({"security.ssl.protocol": "SSLv3"}))


def test_an_application_carries_what_the_clients_keystores_hold(stores: Stores) -> None:
    values = {**stores.settings("internal"), **stores.settings("rest"), "security.ssl.rest.enabled": "true"}
    secrets = with_own_certificates(make_secrets(RandomIdFactory(), SystemClock()), Settings(values))
    assert secrets.for_master({}).identity.certificate == stores.identity.certificate
    assert secrets.for_task_executor({}).identity.certificate == stores.identity.certificate
    assert same_key(secrets.for_master({}).rest_identity.private_key, stores.identity.private_key)
    assert "PRIVATE KEY" not in repr(secrets)
