"""Local files and WebHDFS behave alike behind the interface."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runtime.fs.fake_webhdfs import fake_webhdfs
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import join
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.fs.file_search import find_files
from yarrow.runtime.fs.file_system import exists
from yarrow.runtime.fs.hdfs_settings import (
    HdfsSettings,
    hadoop_configuration,
    http_addresses,
    use_hdfs_settings,
)
from yarrow.runtime.fs.registry import file_system_for
from yarrow.runtime.fs.webhdfs_sessions import close_sessions


@pytest.fixture(params=["path", "url", "webhdfs"])
def base(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "webhdfs":
        with fake_webhdfs(tmp_path) as url:
            yield f"{url}/data"
            close_sessions()
    else:
        yield str(tmp_path / "data") if request.param == "path" else f"file://{tmp_path}/data"


def put(path: str, data: bytes) -> None:
    with file_system_for(path).create(path) as stream:
        stream.write(data)


def test_what_is_written_is_read(base: str) -> None:
    path = join(base, "a b", "file.bin")
    data = bytes(range(256)) * 20_000
    put(path, data)
    with file_system_for(path).open(path) as stream:
        assert stream.read() == data
        stream.seek(1_000_001)
        assert stream.read(3) == data[1_000_001:1_000_004]
        stream.seek(-2, 2)
        assert stream.read() == data[-2:]
    status = file_system_for(path).status(path)
    assert (status.name, status.is_dir, status.size) == ("file.bin", False, len(data))


def test_nothing_is_overwritten(base: str) -> None:
    first, second = join(base, "first"), join(base, "second")
    put(first, b"1")
    put(second, b"2")
    files = file_system_for(base)
    with pytest.raises(FileExistsError):
        put(first, b"3")
    with pytest.raises(FileExistsError):
        files.rename(first, second)
    with pytest.raises(FileNotFoundError):
        files.rename(join(base, "third"), join(base, "fourth"))
    files.rename(first, join(base, "fifth"))
    assert [entry.name for entry in files.list(base)] == ["fifth", "second"]


def test_missing_and_deleted(base: str) -> None:
    path = join(base, "file")
    files = file_system_for(path)
    assert not exists(files, path)
    with pytest.raises(FileNotFoundError):
        files.open(path)
    assert not files.delete(path)
    put(path, b"x")
    assert exists(files, path)
    assert files.delete(path)
    assert not exists(files, path)
    files.make_dirs(join(base, "x", "y"))
    assert files.status(join(base, "x")).is_dir


def test_finding_files(base: str) -> None:
    for name in ("b/2.txt", "a/1.txt", "a/deep/3.log", "a/.hidden", "_tmp/4.txt"):
        put(join(base, name), b"x")

    def found(path: str) -> list[str]:
        return [file.path.removeprefix(base + "/") for file in find_files(path)]

    assert found(base) == ["a/1.txt", "a/deep/3.log", "b/2.txt"]
    assert found(join(base, "*", "*.txt")) == ["a/1.txt", "b/2.txt"]
    assert found(join(base, "[ab]")) == ["a/1.txt", "a/deep/3.log", "b/2.txt"]
    assert found(join(base, "*.csv")) == []
    assert found(join(base, "_tmp", "4.txt")) == ["_tmp/4.txt"]
    with pytest.raises(FileNotFoundError):
        find_files(join(base, "none"))


@pytest.mark.differs(
    "FileSource.for_record_stream_format", "FileSink.for_row_format", told="know local paths and HDFS"
)
def test_unknown_scheme_and_foreign_host() -> None:
    with pytest.raises(FileSystemError, match="'s3'"):
        file_system_for("s3://bucket/key")
    with pytest.raises(FileSystemError, match="this machine only"):
        file_system_for("file://elsewhere/x").status("file://elsewhere/x")


def test_unreachable_name_node_is_named() -> None:
    with fake_webhdfs(Path()) as url:
        pass
    former = use_hdfs_settings(HdfsSettings(retry_seconds=0.2))
    try:
        with pytest.raises(
            FileSystemError, match=r"cannot be reached.*tried \d+ times in 0\.\d s.*retry-timeout"
        ):
            find_files(f"{url}/data")
    finally:
        use_hdfs_settings(former)
    close_sessions()


HA = {
    "fs.defaultFS": "hdfs://mycluster",
    "dfs.ha.namenodes.mycluster": "nn1,nn2",
    "dfs.namenode.http-address.mycluster.nn1": "one:9870",
    "dfs.namenode.http-address.mycluster.nn2": "two:9870",
}
RPC = {"dfs.namenode.rpc-address.mycluster.nn1": "one.example:8020"}
OURS = {"fs.defaultFS": "hdfs://ours:8020", "dfs.namenode.http-address": "ours:50070"}
LOOPBACK = {"fs.defaultFS": "hdfs://127.0.0.1:1234", "dfs.namenode.http-address": "127.0.0.1:50070"}


@pytest.mark.parametrize(
    ("path", "properties", "addresses"),
    [
        ("hdfs://host:8020/x", {}, ["http://host:9870"]),
        ("hdfs://host:8020/x", {"dfs.namenode.http-address": "0.0.0.0:50070"}, ["http://host:50070"]),
        ("webhdfs://host:1234/x", {}, ["http://host:1234"]),
        ("hdfs:///x", {"fs.defaultFS": "hdfs://name:9000"}, ["http://name:9870"]),
        ("hdfs:///x", HA, ["http://one:9870", "http://two:9870"]),
        (
            "hdfs://host/x",
            {"dfs.http.policy": "HTTPS_ONLY", "dfs.namenode.https-address": "host:9871"},
            ["https://host:9871"],
        ),
        ("hdfs://host/x", {"dfs.http.policy": "HTTPS_ONLY"}, ["https://host:9871"]),
        ("hdfs://ours:8020/x", OURS, ["http://ours:50070"]),
        ("hdfs://ours/x", OURS, ["http://ours:50070"]),
        ("hdfs:///x", OURS, ["http://ours:50070"]),
        # What is written there must not come to lie here: another HDFS, on another machine or on the same.
        ("hdfs://other:1/x", OURS, ["http://other:9870"]),
        ("hdfs://ours:9000/x", OURS, ["http://ours:9870"]),
        ("hdfs://localhost:1234/x", LOOPBACK, ["http://127.0.0.1:50070"]),
        ("hdfs://localhost:1235/x", LOOPBACK, ["http://localhost:9870"]),
        ("hdfs://one.example:8020/x", HA | RPC, ["http://one:9870"]),
        # What only Hadoop can read is no other name node's.
        ("hdfs://other/x", {"dfs.namenode.rpc-address": "ours:${port}"}, ["http://other:9870"]),
        (
            "hdfs:///x",
            {"fs.defaultFS": "hdfs://ours:${port}", "dfs.namenode.http-address": "web:1"},
            ["http://web:1"],
        ),
        ("hdfs://federated/x", OURS | {"dfs.namenode.http-address.federated": "f:1"}, ["http://f:1"]),
    ],
)
def test_addresses_of_name_nodes(path: str, properties: dict[str, str], addresses: list[str]) -> None:
    assert http_addresses(path, properties) == addresses


def test_hdfs_without_name_node_says_what_to_set() -> None:
    with pytest.raises(FileSystemError, match=r"fs\.defaultFS"):
        http_addresses("hdfs:///x", {})


@pytest.mark.parametrize("path", ["hdfs://host:abc/x", "hdfs://host:99999/x", "webhdfs://host:abc/x"])
def test_a_port_that_is_none_is_refused_by_its_path(path: str) -> None:
    with pytest.raises(FileSystemError, match=path.removesuffix("x")):
        file_system_for(path).status(path)


def test_files_of_hadoop_are_read_once_for_each_hdfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "core-site.xml"
    text = "<configuration><property><name>fs.defaultFS</name><value>hdfs://n:1</value></property></configuration>"
    site.write_text(text)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    file_system_for("hdfs:///a")
    site.unlink()
    file_system_for("hdfs:///b")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "other"))
    with pytest.raises(FileSystemError, match="names no name node"):
        file_system_for("hdfs:///c")


def test_hadoop_configuration_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "core-site.xml").write_text(
        "<configuration><property><name>fs.defaultFS</name><value> hdfs://n:1 </value></property>"
        "</configuration>"
    )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert hadoop_configuration() == {"fs.defaultFS": "hdfs://n:1"}


def test_a_setting_names_the_folder_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("environment", "setting"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "core-site.xml").write_text(
            f"<configuration><property><name>fs.defaultFS</name><value>hdfs://{name}:1</value></property>"
            "</configuration>"
        )
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path / "environment"))
    for key in ("env.hadoop.conf.dir", "env.yarn.conf.dir"):
        for folder, expected in (("setting", "setting"), ("of another machine", "environment")):
            settings = HdfsSettings.of(Settings({key: str(tmp_path / folder)}))
            former = use_hdfs_settings(settings)
            try:
                assert hadoop_configuration() == {"fs.defaultFS": f"hdfs://{expected}:1"}
            finally:
                use_hdfs_settings(former)


def test_clients_give_up_sooner_unless_told_otherwise() -> None:
    assert HdfsSettings.of(Settings()).retry_seconds == 60
    assert HdfsSettings.of(Settings(), is_client=True).retry_seconds == 10
    told = Settings({"fs.webhdfs.retry-timeout": "30 s"})
    assert HdfsSettings.of(told, is_client=True).retry_seconds == 30
