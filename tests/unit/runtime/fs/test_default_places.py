"""Where plain paths lie and where processes make their folders, as fs.default-scheme and process.working-dir say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from yarrow.common.configuration import Configuration
from yarrow.common.serialization import Encoder
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from yarrow.datastream.connectors.number_seq import NumberSequenceSource
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.common.paths import with_default_scheme
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue
from yarrow.runtime.fs import hdfs_settings
from yarrow.runtime.fs.client_folder import ClientFolder, parent_folder
from yarrow.runtime.fs.hdfs_settings import HdfsSettings

DEFAULT = "hdfs://name-node:9000/"


@pytest.mark.parametrize(
    ("path", "default", "where"),
    [
        ("/data/in", DEFAULT, "hdfs://name-node:9000/data/in"),
        ("/data/in", None, "/data/in"),
        ("data/in", None, "data/in"),
        ("/data/in", "file:///", "/data/in"),
        ("file:///data/in", DEFAULT, "file:///data/in"),
        ("file:/data/in", DEFAULT, "file:/data/in"),
        ("hdfs://other/in", DEFAULT, "hdfs://other/in"),
    ],
)
def test_only_a_plain_path_takes_the_default(path: str, default: str | None, where: str) -> None:
    assert with_default_scheme(path, default) == where


def test_a_relative_path_is_refused_beside_a_default() -> None:
    with pytest.raises(FileSystemError, match=r"data/in: a relative path.*hdfs://name-node:9000/data/in"):
        with_default_scheme("data/in", DEFAULT)


def test_files_of_a_program_lie_there() -> None:
    configuration = Configuration()
    configuration.set_string("fs.default-scheme", DEFAULT)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    lines = StreamFormat.text_line_format()
    source: Any = FileSource.for_record_stream_format(lines, "/in", "file:///local").build()
    sink: Any = FileSink.for_row_format("/out", Encoder.simple_string_encoder()).build()
    assert not sink.blocking
    read = env.in_default_file_system(source)
    written = env.in_default_file_system(sink)
    assert read._paths == ("hdfs://name-node:9000/in", "file:///local")
    assert written._settings.base_path == "hdfs://name-node:9000/out"
    assert read.blocking and written.blocking
    numbers = NumberSequenceSource(1, 2)
    assert env.in_default_file_system(numbers) is numbers


def test_files_of_a_program_are_reached_by_its_login_unless_the_process_has_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hdfs_settings, "_settings", HdfsSettings())
    monkeypatch.setattr(hdfs_settings, "_are_chosen", False)
    login = {"security.kerberos.login.keytab": "/keys", "security.kerberos.login.principal": "alice@A"}

    def built(configuration: dict[str, str]) -> str:
        given = Configuration()
        for key, value in configuration.items():
            given.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(given)
        env.in_default_file_system(NumberSequenceSource(1, 2))
        return hdfs_settings.hdfs_settings().login.keytab

    assert built(login) == "/keys"
    assert built({**login, "security.kerberos.login.keytab": "/others"}) == "/others"
    hdfs_settings.use_hdfs_settings(HdfsSettings())
    assert built(login) == "", "the master of an application has the tokens of its container"


def test_folders_lie_in_the_working_directory(tmp_path: Path) -> None:
    working = tmp_path / "made" / "here"
    settings = Settings({"process.working-dir": str(working), "io.tmp.dirs": str(tmp_path)})
    folder = ClientFolder(parent_folder(settings), "yarrow-test-")
    try:
        assert Path(folder.path).parent == working
    finally:
        folder.remove()
    missing = tmp_path / "not" / "there"
    assert parent_folder(Settings({"io.tmp.dirs": f"{missing},/nowhere"})) == str(missing)
    assert missing.is_dir()
    assert parent_folder(Settings()) is None


@pytest.mark.parametrize("key", ["process.working-dir", "io.tmp.dirs"])
def test_a_folder_that_cannot_be_is_named_with_its_option(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidOptionValue, match=re.escape(key)):
        parent_folder(Settings({key: str(tmp_path / "file" / "below")}))
