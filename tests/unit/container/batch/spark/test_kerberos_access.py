"""Logins of Spark on a YARN that asks for Kerberos, and the errors that name a missing token or login."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.unit.container.batch.spark.test_settings import FOLDERS
from tests.unit.container.batch.spark.test_yarn_settings import SPARK
from tests.unit.runtime.fs.test_hadoop_tokens import protobuf
from yarrow.container.batch.spark.kerberos_access import login_settings, reason_of
from yarrow.container.batch.spark.session import java_environment
from yarrow.container.batch.spark.settings import java_arguments, spark_settings
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.hadoop_tokens import HDFS_KIND, RM_KIND, HadoopToken
from yarrow.runtime.yarn.gateways import YarnError
from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration

STAGING = "hdfs://127.0.0.1:9000/user/alice/.skein"
SECURED = {"hadoop.security.authentication": "kerberos"}
PRINCIPAL = "alice@YARROW.TEST"
CONTAINER = {"CONTAINER_ID": "container_1_0001_01_000002"}


def token(kind: str, service: str) -> HadoopToken:
    return HadoopToken(kind, service, b"who it is for", b"its secret")


RM_TOKEN = token(RM_KIND, "127.0.0.1:8032")
HDFS_TOKEN = token(HDFS_KIND, "127.0.0.1:9000")


@pytest.fixture
def keytab(tmp_path: Path) -> Settings:
    """The configuration of a login by keytab."""
    (tmp_path / "keys").touch()
    return Settings(
        {
            "security.kerberos.login.keytab": str(tmp_path / "keys"),
            "security.kerberos.login.principal": PRINCIPAL,
            "security.kerberos.access.hadoopFileSystems": "hdfs://a:1;hdfs://b:2",
        }
    )


def settings_of(
    config: Settings, environment: dict[str, str], properties: dict[str, str] = SECURED
) -> dict[str, str]:
    hadoop = HadoopConfiguration(Path("/etc/hadoop"), "HADOOP_CONF_DIR", properties)
    return login_settings(config, hadoop, STAGING, environment)


def in_container(folder: Path, tokens: Sequence[HadoopToken]) -> dict[str, str]:
    (folder / "container_tokens").write_bytes(protobuf(tokens))
    return {**CONTAINER, "HADOOP_TOKEN_FILE_LOCATION": str(folder / "container_tokens")}


def test_a_container_has_tokens_and_no_keytab(keytab: Settings, tmp_path: Path) -> None:
    assert settings_of(keytab, in_container(tmp_path, [RM_TOKEN, HDFS_TOKEN])) == {}


@pytest.mark.parametrize(
    ("tokens", "missing"),
    [
        ([HDFS_TOKEN], "RM_DELEGATION_TOKEN for YARN's ResourceManager"),
        ([RM_TOKEN], f"HDFS_DELEGATION_TOKEN for {STAGING}"),
        ([RM_TOKEN, token(HDFS_KIND, "127.0.0.1:9001")], f"HDFS_DELEGATION_TOKEN for {STAGING}"),
        ([], f"RM_DELEGATION_TOKEN for YARN's ResourceManager and HDFS_DELEGATION_TOKEN for {STAGING}"),
    ],
)
def test_a_token_that_a_container_lacks_is_named(
    tokens: Sequence[HadoopToken], missing: str, tmp_path: Path
) -> None:
    with pytest.raises(YarnError) as caught:
        settings_of(Settings(), in_container(tmp_path, tokens))
    said = str(caught.value)
    assert f"this container lacks: {missing}. " in said
    assert "security.kerberos.access.hadoopFileSystems" in said
    assert "secret" not in said and "who it is for" not in said


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({}, "HADOOP_TOKEN_FILE_LOCATION is not set"),
        ({"HADOOP_TOKEN_FILE_LOCATION": "/nowhere/tokens"}, "No such file or directory: '/nowhere/tokens'"),
    ],
)
def test_a_container_without_a_file_of_tokens_says_so(variables: dict[str, str], why: str) -> None:
    with pytest.raises(YarnError, match=f"asks for Kerberos, and this container has no tokens: .*{why}"):
        settings_of(Settings(), {**CONTAINER, **variables})


def test_a_keytab_of_this_host_is_sparks_too(keytab: Settings, tmp_path: Path) -> None:
    found = settings_of(keytab, {})
    assert found == {
        "spark.kerberos.keytab": str(tmp_path / "keys"),
        "spark.kerberos.principal": PRINCIPAL,
        "spark.kerberos.access.hadoopFileSystems": "hdfs://a:1,hdfs://b:2",
    }
    spark = SPARK.__class__(
        SPARK.hadoop, SPARK.staging, SPARK.tags, SPARK.resource_managers, SPARK.interpreter, SPARK.jars, found
    )
    settings = spark_settings(Settings({"spark.master": "yarn"}), 1, FOLDERS, ("a", "a"), spark)
    assert found.items() <= settings.items(), "Spark gets tokens for executors by it, again and again"
    arguments = java_arguments(Settings(), Path("/jars"), Path("/log"), FOLDERS, spark.hadoop, spark.login)
    main = arguments.index("org.apache.spark.deploy.SparkSubmit")
    assert f"spark.kerberos.keytab={tmp_path}/keys" in arguments[main:], "Java logs in by it before it starts"
    assert arguments[-1] == "pyspark-shell"


@pytest.mark.parametrize(
    ("config", "properties"),
    [
        ({}, SECURED),
        ({"security.kerberos.login.keytab": "/keys", "security.kerberos.login.principal": PRINCIPAL}, {}),
    ],
)
def test_the_ticket_cache_and_a_hadoop_that_asks_for_nothing_need_no_keytab(
    config: dict[str, str], properties: dict[str, str]
) -> None:
    assert settings_of(Settings(config), {}, properties) == {}


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (
            {
                "security.kerberos.login.keytab": "/nowhere/keys",
                "security.kerberos.login.principal": PRINCIPAL,
            },
            "/nowhere/keys, which does not exist",
        ),
        ({"security.kerberos.login.use-ticket-cache": "false"}, "use-ticket-cache is false"),
    ],
)
def test_a_login_that_cannot_be_meant_is_refused(config: dict[str, str], why: str) -> None:
    with pytest.raises(YarnError, match=why):
        settings_of(Settings(config), {})


def test_java_finds_the_kdc_as_each_java_of_the_host_does_and_gets_no_secret() -> None:
    own = {
        "JAVA_TOOL_OPTIONS": "-Djava.security.krb5.conf=/etc/own.conf",
        "HADOOP_TOKEN_FILE_LOCATION": "/container/tokens",
        "KRB5CCNAME": "/tickets",
        "A_PASSWORD": "not for Spark",
    }
    found = java_environment(own, Path("/spark"), Path("/announced"))
    assert found["JAVA_TOOL_OPTIONS"] == own["JAVA_TOOL_OPTIONS"]
    assert found["HADOOP_TOKEN_FILE_LOCATION"] == "/container/tokens" and found["KRB5CCNAME"] == "/tickets"
    assert "A_PASSWORD" not in found


def test_words_of_a_refused_login_get_their_reason() -> None:
    refused = "DestHost:destPort nn:9000: Client cannot authenticate via:[TOKEN, KERBEROS]"
    assert "run `kinit`" in reason_of(refused, {})
    inside = reason_of(refused, CONTAINER)
    assert inside.startswith(refused) and "this container has no token for that address" in inside
    assert "name the realm and its KDC in /etc/krb5.conf" in reason_of("Can't get Kerberos realm", CONTAINER)
    assert reason_of("there is no room", {}) == "there is no room"
