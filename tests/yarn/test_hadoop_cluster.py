"""The cluster itself: everything serves, clients find it, and each daemon comes back after it was killed."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from tests.support.hadoop import web
from tests.support.hadoop.cluster import HadoopCluster
from tests.support.hadoop.layout import DAEMONS, user
from tests.support.hadoop.leftovers import Leftovers, Places, znodes_below
from tests.support.hadoop.readiness import running_nodes
from tests.support.services.processes import identify
from tests.yarn.waiting import GRACE
from yarrow.runtime.common.errors import FileSystemError
from yarrow.runtime.fs.hdfs_settings import HdfsSettings, use_hdfs_settings
from yarrow.runtime.fs.webhdfs import WebHdfsFileSystem


def write(path: str, content: bytes) -> None:
    files = WebHdfsFileSystem.for_path(path)
    with files.create(path) as stream:
        stream.write(content)


def read(path: str) -> bytes:
    with WebHdfsFileSystem.for_path(path).open(path) as stream:
        return stream.read()


@pytest.fixture
def fault_cluster(hadoop: HadoopCluster) -> HadoopCluster:
    """The cluster, where daemons may be killed."""
    if "YARROW_HADOOP_DIRECTORY" in os.environ:
        pytest.skip("others use this cluster: its daemons are not killed")
    return hadoop


def test_every_daemon_serves(hadoop: HadoopCluster) -> None:
    states = {daemon.name: daemon.state for daemon in hadoop.status()}
    assert states == {daemon.name: "serving" for daemon in DAEMONS}


def test_up_starts_nothing_when_all_runs(hadoop: HadoopCluster) -> None:
    before = [daemon.pid for daemon in hadoop.status()]
    assert hadoop.up() is False
    assert [daemon.pid for daemon in hadoop.status()] == before


def test_yarn_sees_two_hosts(hadoop: HadoopCluster) -> None:
    nodes = running_nodes(hadoop.ports)
    assert len({node["nodeHostName"] for node in nodes}) == 2
    assert all(node["availMemoryMB"] + node["usedMemoryMB"] == 6656 for node in nodes)


def test_yarn_command_answers_what_clients_ask(hadoop: HadoopCluster) -> None:
    classpath = hadoop.run("yarn", "classpath", "--glob").stdout.strip().split(":")
    assert classpath[0] == str(hadoop.conf_dir)
    assert any("hadoop-yarn-client-" in jar for jar in classpath)
    assert not [entry for entry in classpath if "*" in entry]
    applications = hadoop.run("yarn", "application", "-list")
    assert applications.returncode == 0, applications.stderr
    assert "Total number of applications" in applications.stdout
    assert hadoop.run("yarn", "node", "-list").stdout.count("RUNNING") == 2


def test_yarn_command_refuses_what_it_does_not_know(hadoop: HadoopCluster) -> None:
    done = hadoop.run("yarn", "jar", "some.jar")
    assert done.returncode == 1
    assert "unknown command 'jar'" in done.stderr


def test_hdfs_command_sees_a_live_data_node(hadoop: HadoopCluster) -> None:
    assert "Live datanodes (1)" in hadoop.run("hdfs", "dfsadmin", "-report").stdout
    assert hadoop.run("hdfs", "dfs", "-test", "-d", "/tmp").returncode == 0


def test_files_are_written_read_renamed_listed_and_deleted(
    hadoop_environment: None, hdfs_folder: str
) -> None:
    files = WebHdfsFileSystem.for_path(hdfs_folder)
    content = os.urandom(3_000_000)
    write(f"{hdfs_folder}/.part", content)
    with pytest.raises(FileExistsError):
        files.create(f"{hdfs_folder}/.part")
    files.rename(f"{hdfs_folder}/.part", f"{hdfs_folder}/part")
    assert read(f"{hdfs_folder}/part") == content
    assert [(entry.path, entry.size) for entry in files.list(hdfs_folder)] == [
        (f"{hdfs_folder}/part", len(content))
    ]
    assert files.delete(f"{hdfs_folder}/part") is True
    assert files.delete(f"{hdfs_folder}/part") is False
    with pytest.raises(FileNotFoundError):
        files.status(f"{hdfs_folder}/part")


def test_rename_refuses_a_target_that_exists(hadoop_environment: None, hdfs_folder: str) -> None:
    write(f"{hdfs_folder}/one", b"1")
    write(f"{hdfs_folder}/two", b"2")
    with pytest.raises(FileExistsError):
        WebHdfsFileSystem.for_path(hdfs_folder).rename(f"{hdfs_folder}/one", f"{hdfs_folder}/two")
    assert (read(f"{hdfs_folder}/one"), read(f"{hdfs_folder}/two")) == (b"1", b"2")


def test_zookeeper_keeps_and_watches_nodes(hadoop: HadoopCluster) -> None:
    from kazoo.client import KazooClient

    root = f"/test-of-the-cluster-{os.getpid()}"
    client = KazooClient(hosts=hadoop.zookeeper_quorum)
    client.start(timeout=60)
    try:
        changed = threading.Event()
        client.create(f"{root}/leader", b"one", makepath=True, ephemeral=True)
        client.get(f"{root}/leader", watch=lambda _: changed.set())
        client.set(f"{root}/leader", b"two")
        assert changed.wait(GRACE)
        assert znodes_below(hadoop.zookeeper_quorum, root) == [f"{root}/leader"]
        client.delete(root, recursive=True)
    finally:
        client.stop()
        client.close()
    assert znodes_below(hadoop.zookeeper_quorum, root) == []


def test_leftovers_finds_a_file_and_a_znode(
    hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> None:
    from kazoo.client import KazooClient

    root = f"/test-of-leftovers-{os.getpid()}"
    places = Places(root, folders=(hdfs_folder.removeprefix(hadoop.hdfs_url),), kept=())
    # Processes of a former test's application may still be ending.
    assert not hadoop.leftovers(places, seconds=GRACE)
    write(f"{hdfs_folder}/forgotten", b"")
    client = KazooClient(hosts=hadoop.zookeeper_quorum)
    client.start(timeout=60)
    try:
        client.create(f"{root}/forgotten", makepath=True)
        left = hadoop.leftovers(places)
        assert left.files == [f"{places.folders[0]}/forgotten" if places.folders else ""]
        assert left.znodes == [f"{root}/forgotten"]
        assert not left.since(Leftovers(znodes=left.znodes, files=left.files))
        client.delete(root, recursive=True)
    finally:
        client.stop()
        client.close()


def test_killed_name_node_comes_back_out_of_safe_mode_with_its_files(
    fault_cluster: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> None:
    write(f"{hdfs_folder}/kept", b"content")
    fault_cluster.kill("namenode")
    former = use_hdfs_settings(HdfsSettings(retry_seconds=1.0))
    try:
        with pytest.raises(FileSystemError, match=r"tried \d+ times in \d+\.\d s"):
            read(f"{hdfs_folder}/kept")
    finally:
        use_hdfs_settings(former)
    assert fault_cluster.start("namenode") is True
    fault_cluster.wait_until_ready("namenode", "datanode")
    # The DataNode's own connection to the former NameNode breaks one request: it is made again.
    assert read(f"{hdfs_folder}/kept") == b"content"
    write(f"{hdfs_folder}/new", b"written after safe mode")


@pytest.mark.soak
def test_killed_data_node_comes_back_with_its_blocks(
    fault_cluster: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> None:
    write(f"{hdfs_folder}/kept", b"content")
    fault_cluster.kill("datanode")
    assert {daemon.name for daemon in fault_cluster.status() if not daemon.serving} == {"datanode"}
    fault_cluster.start("datanode")
    fault_cluster.wait_until_ready("datanode")
    assert read(f"{hdfs_folder}/kept") == b"content"


@pytest.mark.soak
def test_killed_resource_manager_knows_its_nodes_again(fault_cluster: HadoopCluster) -> None:
    fault_cluster.kill("resourcemanager")
    fault_cluster.start("resourcemanager")
    fault_cluster.wait_until_ready()
    assert len(running_nodes(fault_cluster.ports)) == 2


def test_killed_zookeeper_comes_back_with_its_nodes(fault_cluster: HadoopCluster) -> None:
    from kazoo.client import KazooClient

    path = f"/test-of-a-restart-{os.getpid()}"
    client = KazooClient(hosts=fault_cluster.zookeeper_quorum, timeout=20.0)
    client.start(timeout=60)
    try:
        client.create(path, b"kept")
        fault_cluster.kill("zookeeper")
        fault_cluster.start("zookeeper")
        fault_cluster.wait_until_ready("zookeeper")
        assert client.retry(client.get, path)[0] == b"kept"
        client.retry(client.delete, path)
    finally:
        client.stop()
        client.close()


def test_stopped_daemon_is_told_from_one_that_serves(fault_cluster: HadoopCluster) -> None:
    fault_cluster.kill("nodemanager2", signal.SIGSTOP)
    states = {daemon.name: daemon.state for daemon in fault_cluster.status()}
    assert states["nodemanager2"] == "stopped by a signal"
    fault_cluster.kill("nodemanager2", signal.SIGCONT)
    fault_cluster.wait_until_ready("nodemanager2")


@pytest.mark.soak
@pytest.mark.slow
def test_two_clusters_stand_side_by_side(
    hadoop: HadoopCluster, hadoop_environment: None, hdfs_folder: str
) -> None:
    other = HadoopCluster.at(f"{hadoop.directory}-other")
    with other:
        assert not set(other.ports.values()) & set(hadoop.ports.values())
        write(f"{hdfs_folder}/here", b"")
        folder = hdfs_folder.removeprefix(hadoop.hdfs_url)
        assert web.files_below(hadoop.ports["namenode.web"], folder, user()) == [f"{folder}/here"]
        assert web.files_below(other.ports["namenode.web"], folder, user()) == []
        pids = [daemon.pid for daemon in other.status() if daemon.pid is not None]
        assert all(identify(pid) for pid in pids)
    assert not other.directory.exists()
    assert not [pid for pid in pids if identify(pid)]
    assert all(daemon.serving for daemon in hadoop.status())
