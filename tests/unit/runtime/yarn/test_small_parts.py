"""A packed job, the overlay of Hadoop's configuration, the last words of a failed container."""

from __future__ import annotations

import zipfile
from pathlib import Path
from xml.etree import ElementTree

import pytest

from yarrow.client.yarn.container_logs import gathered_logs, last_words
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph, UserCode
from yarrow.runtime.yarn.hadoop_overlay import client_properties, master_properties, write_overlay
from yarrow.runtime.yarn.packed_job import PackedJobError, pack_job, unpack_job

LOGS = """\
Container: container_1_1_01_000001 on node_1
LogType:application.driver.log
LogLength:0
LogContents:

End of LogType:application.driver.log
**********
LogType:application.master.log
LogLength:10
LogContents:
skein says
End of LogType:application.master.log
**********
LogType:jobmanager.log
LogLength:10
LogContents:
{text}

End of LogType:jobmanager.log
"""


def test_a_job_travels_with_its_files(tmp_path: Path) -> None:
    (tmp_path / "data.txt").write_text("a")
    graph = JobGraph(job_id=JobID("0" * 32), name="x", vertices=(), edges=(), user_code=UserCode())
    packed = pack_job(
        graph, [LocalFile(name="data.txt", kind="cached_file", path=str(tmp_path / "data.txt"))]
    )
    found, files = unpack_job(packed)
    assert [files[file.blob_key] for file in found.user_code.files] == [b"a"]
    assert found.job_id == graph.job_id


def test_a_file_of_another_kind_is_no_job() -> None:
    with pytest.raises(PackedJobError, match="same version"):
        unpack_job(b"\xc1")


def test_an_overlay_is_final_and_always_the_same(tmp_path: Path) -> None:
    config = Settings(
        {"flink.hadoop.a": "<&>", "flink.yarn.b.c": "2", "yarn.heartbeat.container-request-interval": "250"}
    )
    write_overlay(tmp_path / "one.jar", master_properties(config))
    write_overlay(tmp_path / "two.jar", master_properties(config))
    assert (tmp_path / "one.jar").read_bytes() == (tmp_path / "two.jar").read_bytes()
    with zipfile.ZipFile(tmp_path / "one.jar") as jar:
        root = ElementTree.fromstring(jar.read("hadoop-site.xml"))
    found = {entry.findtext("name"): entry.findtext("value") for entry in root}
    assert found == {
        "a": "<&>",
        "yarn.b.c": "2",
        "yarn.am.liveness-monitor.expiry-interval-ms": "500",
        "yarn.resourcemanager.am.max-attempts": "2147483647",
    }
    assert all(entry.findtext("final") == "true" for entry in root)


def test_a_client_gives_up_soon_unless_it_is_told_otherwise() -> None:
    assert int(client_properties(Settings())["yarn.resourcemanager.connect.max-wait.ms"]) <= 30_000
    assert client_properties(Settings({"yarn.file-replication": "2"}))["dfs.replication"] == "2"
    assert "dfs.replication" not in client_properties(Settings())
    patient = Settings({"flink.yarn.resourcemanager.connect.max-wait.ms": "900000"})
    assert client_properties(patient)["yarn.resourcemanager.connect.max-wait.ms"] == "900000"


def test_the_masters_own_log_tells_most() -> None:
    said = last_words(LOGS.format(text="\n".join(["line"] * 50 + ["Traceback", "ValueError: x"])))
    assert said.startswith("The end of jobmanager.log:\n")
    assert said.endswith("ValueError: x")
    assert said.count("\n") < 15


def test_without_it_what_is_there_is_shown() -> None:
    assert last_words(LOGS.format(text="")) == "The end of application.master.log:\nskein says"
    assert last_words("no such application") == ""


def test_without_the_program_there_are_no_logs(tmp_path: Path) -> None:
    assert gathered_logs("application_1_1", {"PATH": str(tmp_path)}, 5.0) == ""
