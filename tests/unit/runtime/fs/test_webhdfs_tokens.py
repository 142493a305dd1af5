"""WebHDFS of a secured HDFS: the token of the container goes with every request, and into no text."""

from __future__ import annotations

import logging
import os
import traceback
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.unit.runtime.fs.fake_webhdfs import Fault, fake_webhdfs
from tests.unit.runtime.fs.test_hadoop_tokens import protobuf, writable
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.hadoop_login import HadoopLogin, HadoopLoginError, explained, fetch_token
from yarrow.runtime.fs.hadoop_tokens import TOKEN_FILE_VARIABLE, HadoopToken
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.retries import TransientError
from yarrow.runtime.fs.webhdfs_sessions import close_sessions

CORE_SITE = """<configuration>
<property><name>hadoop.security.authentication</name><value>kerberos</value></property>
</configuration>"""
KIND = "WEBHDFS delegation"


@pytest.fixture
def secured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The token file of a process whose Hadoop asks for Kerberos."""
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "core-site.xml").write_text(CORE_SITE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "conf"))
    monkeypatch.setenv(TOKEN_FILE_VARIABLE, str(tmp_path / "tokens"))
    former = use_hdfs_settings(HdfsSettings(retry_seconds=0.0))
    yield tmp_path / "tokens"
    close_sessions()
    use_hdfs_settings(former)


def token(base: str, password: bytes = b"the password") -> HadoopToken:
    return HadoopToken(KIND, urlsplit(base).netloc, b"an identifier", password)


def test_every_request_shows_the_token_and_no_name(tmp_path: Path, secured: Path) -> None:
    asked: list[str] = []
    with fake_webhdfs(tmp_path / "data", asked=asked) as base:
        secured.write_bytes(writable([token(base)]))
        path = f"{base}/folder/file"
        with file_system_for(path).create(path) as stream:
            stream.write(b"content")
        with file_system_for(path).open(path) as stream:
            assert stream.read() == b"content"
    shown = f"delegation={token(base).url_text()}"
    assert asked
    assert all(shown in address and "user.name" not in address for address in asked)


def test_a_file_of_tokens_that_was_replaced_is_read_again(tmp_path: Path, secured: Path) -> None:
    asked: list[str] = []
    with fake_webhdfs(tmp_path, asked=asked) as base:
        first, second = token(base), token(base, b"another")
        secured.write_bytes(writable([first]))
        file_system_for(base).list(f"{base}/")
        secured.with_name("new").write_bytes(protobuf([second]))
        os.replace(secured.with_name("new"), secured)
        file_system_for(base).list(f"{base}/")
    assert [first.url_text() in asked[0], second.url_text() in asked[-1]] == [True, True]


def test_the_token_is_in_no_log_and_no_error(
    tmp_path: Path, secured: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    texts = []
    with fake_webhdfs(tmp_path, [Fault("liststatus", times=9), Fault("open", half=b"x")]) as base:
        secret = token(base).url_text()
        secured.write_bytes(writable([token(base)]))
        (tmp_path / "file").write_bytes(b"content")
        files = file_system_for(base)
        with pytest.raises(FileSystemError) as broken:
            files.list(f"{base}/")
        texts.append(broken.value)
        with pytest.raises(FileSystemError) as half, files.open(f"{base}/file") as stream:
            stream.read()
        texts.append(half.value)
    with pytest.raises(FileSystemError) as refused:
        files.list(f"{base}/")
    texts.append(refused.value)
    assert "delegation=******" in str(refused.value)
    assert "delegation=******" in caplog.text
    for text in (caplog.text, *("".join(traceback.format_exception(error)) for error in texts)):
        assert secret[:20] not in text


def test_a_container_without_the_token_says_which_setting_gets_it(
    tmp_path: Path, secured: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONTAINER_ID", "container_1_1_01_000001")
    with fake_webhdfs(tmp_path) as base:
        secured.write_bytes(writable([token("webhdfs://elsewhere:1")]))
        with pytest.raises(FileSystemError, match=r"security\.kerberos\.access\.hadoopFileSystems"):
            file_system_for(base).list(f"{base}/")
        secured.write_bytes(b"HDTS\0\5")
        with pytest.raises(FileSystemError, match=f"{TOKEN_FILE_VARIABLE} names .*tokens"):
            file_system_for(base).list(f"{base}/")


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (
            Fault(
                "liststatus",
                "SecurityException",
                "org.apache.hadoop.security.token.SecretManager$InvalidToken",
            ),
            "does not know the delegation token",
        ),
    ],
)
def test_a_token_that_has_ended_is_said_to_have(
    tmp_path: Path, secured: Path, fault: Fault, said: str
) -> None:
    with fake_webhdfs(tmp_path, [fault]) as base:
        secured.write_bytes(writable([token(base)]))
        with pytest.raises(FileSystemError, match=said):
            file_system_for(base).list(f"{base}/")


@pytest.mark.parametrize(
    ("login", "said"),
    [
        (HadoopLogin("", "alice"), "set together"),
        (HadoopLogin("/no/such/keytab", "alice"), "does not exist or cannot be read"),
        (HadoopLogin(may_use_ticket_cache=False), "use-ticket-cache is false"),
    ],
)
def test_a_login_that_cannot_be_is_refused_at_once(login: HadoopLogin, said: str) -> None:
    with pytest.raises(HadoopLoginError, match=said):
        fetch_token("hdfs://nowhere:1", login, None)


@pytest.mark.parametrize(
    ("hadoop", "said"),
    [
        ("LoginException: Unable to obtain password from user", r"login\.principal must be one"),
        ("LoginException: Client not found in Kerberos database (6)", "the KDC does not know"),
        ("LoginException: Checksum failed", "the KDC refuses the key"),
        ("AccessControlException: Client cannot authenticate via:[TOKEN, KERBEROS]", "run `kinit`"),
        ("KrbException: Cannot locate default realm", "krb5.conf"),
    ],
)
def test_what_hadoop_says_of_a_login_becomes_a_sentence(hadoop: str, said: str) -> None:
    error = explained(f"Exception in thread main java.x.{hadoop}\n", "hdfs://a:1", HadoopLogin("/k", "alice"))
    assert "\n" not in str(error)
    with pytest.raises(HadoopLoginError, match=said):
        raise error


def test_a_name_node_that_is_down_is_asked_again() -> None:
    said = "WARN ipc.Client: failed\njava.net.ConnectException: Connection refused\n\tat java.base/x\n"
    error = explained(said, "hdfs://a:1", HadoopLogin())
    assert isinstance(error, TransientError)
    assert "by the ticket cache failed: java.net.ConnectException: Connection refused" in str(error)
