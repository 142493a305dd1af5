"""Private members of libraries that we use: each is listed, still there, and still does its part.

A version of a library without one of them fails here, by name, and not in a cluster that loses its leader. What each is
needed for stands beside its use.
"""

from __future__ import annotations

import ast
import inspect
import re
import socket
import struct
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hdfs
import pyarrow.compute as pc
import pytest
import requests
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from tests.architecture.source_tree import engine_files, module_name, parse, walk
from tests.unit.runtime.fs.fake_webhdfs import fake_webhdfs
from yarrow.runtime.fs.webhdfs import WebHdfsFileSystem
from yarrow.runtime.fs.webhdfs_sessions import close_sessions
from yarrow.runtime.fs.webhdfs_token_sessions import token_client
from yarrow.runtime.ha.settings import ZooKeeperSettings
from yarrow.runtime.ha.zookeeper_client import ZooKeeperClient, handshake_limit
from yarrow.runtime.yarn import skein_bridge

#: As the bridge imported it, with its stand-in for distutils: an import before that one would warn in other tests.
skein: Any = vars(skein_bridge)["skein"]

#: The rooms that import kazoo, skein and hdfs (`.importlinter` keeps it so), and all that is private there.
ROOMS = ("yarrow.runtime.fs.", "yarrow.runtime.ha.", "yarrow.runtime.yarn.")
USED = {
    # kazoo: ConnectionHandler
    ("yarrow.runtime.ha.zookeeper_client", "_connection"),
    ("yarrow.runtime.ha.zookeeper_client", "_connect"),
    ("yarrow.runtime.ha.zookeeper_client", "_invoke"),
    # skein
    ("yarrow.runtime.yarn.skein_bridge", "_check_is_filename"),
    # hdfs: Client
    ("yarrow.runtime.fs.webhdfs_sessions", "_session"),
}

#: How Spark names its objects of Java.
JAVAS = re.compile(r"_j(vm|sc|df|rdd|conf|seq|map|catalog|spark\w*|\w*[A-Z]\w*)")
#: The same in all other rooms: Java's objects behind those of Spark, and what a module takes of a library by its name.
USED_ELSEWHERE = {
    # pyspark has no public way to Java: its metrics, pages, shuffles and Hadoop's settings.
    ("yarrow.container.batch.spark.iteration_frames", "_jdf"),
    ("yarrow.container.batch.spark.iteration_frames", "_jvm"),
    ("yarrow.container.batch.spark.session", "_jsc"),
    ("yarrow.container.batch.spark.session", "_jsparkSession"),
    ("yarrow.container.batch.spark.spark_pages", "_jsc"),
    ("yarrow.container.batch.spark.spark_pages", "_jsparkSession"),
    ("yarrow.container.batch.spark.spark_pages", "_jvm"),
    ("yarrow.container.batch.spark.yarn_application", "_jsc"),
    # pyarrow writes an expression by pickle alone, which calls this function.
    ("yarrow.runtime.columns.arrow_expressions", "_deserialize"),
}

#: What the server grants, in milliseconds: another time than is asked for.
GRANTED_MS = 42_000


def test_every_private_member_of_a_library_is_listed() -> None:
    found = {
        (module_name(path), node.attr)
        for path in engine_files()
        if module_name(path).startswith(ROOMS)
        for node in walk(parse(path))
        if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__")
        if not (isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"})
    }
    assert found == USED


def of_libraries(tree: ast.Module) -> Iterator[str]:
    """Private members of what a module imports from libraries, and Java's objects. Constants (`_SSL`) are public."""
    libraries = {
        (name.asname or name.name).partition(".")[0]
        for node in walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in node.names
        for package in [(getattr(node, "module", None) or name.name).partition(".")[0]]
        if package not in sys.stdlib_module_names | {"yarrow"}
    }
    for node in walk(tree):
        if isinstance(node, ast.Attribute) and re.match("_[a-z]", node.attr):
            owner: ast.expr = node.value
            while isinstance(owner, ast.Attribute):
                owner = owner.value
            name = owner.id if isinstance(owner, ast.Name) else ""
            own = isinstance(node.value, ast.Name) and node.value.id == "self"
            if name in libraries or (JAVAS.fullmatch(node.attr) and not own):
                yield node.attr


def test_every_private_member_of_a_library_is_listed_in_other_rooms_too() -> None:
    found = {
        (module_name(path), name)
        for path in engine_files()
        if not module_name(path).startswith(ROOMS)
        for name in of_libraries(parse(path))
    }
    assert found == USED_ELSEWHERE


def test_spark_and_arrow_have_the_members_that_are_used() -> None:
    assert hasattr(SparkContext, "_jvm")
    for kind, member in ((SparkContext, "_jsc"), (SparkSession, "_jsparkSession"), (DataFrame, "_jdf")):
        assert f"self.{member}" in inspect.getsource(kind)
    assert "_jvm" in inspect.signature(SparkConf).parameters
    expression = pc.field("a") > 1
    function, arguments = expression.__reduce__()
    assert function == pc.Expression._deserialize
    assert function(*arguments).equals(expression)


@contextmanager
def greeting_server() -> Iterator[int]:
    """A ZooKeeper server that answers one handshake and nothing else; its port."""
    over = threading.Event()

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection:
            (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
            connection.recv(length, socket.MSG_WAITALL)
            answer = struct.pack("!iiqi16s?", 0, GRANTED_MS, 1, 16, bytes(16), False)
            connection.sendall(struct.pack("!i", len(answer)) + answer)
            over.wait()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            over.set()
            thread.join()


def test_kazoo_connects_by_the_methods_that_are_wrapped(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, list[float]] = {"handshake": [], "socket": []}
    invoke, create = ConnectionHandler._invoke, SequentialThreadingHandler.create_connection

    def noted_invoke(self: Any, timeout: float, *arguments: Any, **named: Any) -> Any:
        limits["handshake"].append(timeout)
        return invoke(self, timeout, *arguments, **named)

    def noted_create(self: Any, *arguments: Any, **named: Any) -> Any:
        limits["socket"].append(named["timeout"])
        return create(self, *arguments, **named)

    monkeypatch.setattr(ConnectionHandler, "_invoke", noted_invoke)
    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", noted_create)
    with greeting_server() as port:
        settings = ZooKeeperSettings(quorum=f"127.0.0.1:{port}", root="/r", session_timeout=60)
        client = ZooKeeperClient(settings)
        try:
            client.start()
            assert client.session_timeout == pytest.approx(GRANTED_MS / 1000)
        finally:
            client.stop()
    limit = handshake_limit(settings)
    assert limits["handshake"][0] == limits["socket"][0] == limit < 60


def test_skein_takes_paths_below_the_containers_folder() -> None:
    assert skein.model._check_is_filename is skein_bridge._check_target

    def service(target: str) -> Any:
        return skein.Service(
            resources=skein.Resources(memory=1, vcores=1),
            script="true",
            files={target: skein.File("/etc/hosts")},
        )

    assert list(service("folder/file").files) == ["folder/file"]
    for target in ("/etc/file", "../file", ""):
        with pytest.raises(ValueError, match="is no path below a container's folder"):
            service(target)


def test_clients_of_hdfs_keep_a_session_that_can_be_closed() -> None:
    for client in (
        hdfs.InsecureClient("http://127.0.0.1:1", user="ada"),
        token_client("http://127.0.0.1:1", "t", (1.0, 1.0)),
    ):
        assert isinstance(client._session, requests.Session)
        client._session.close()


def test_the_home_directory_is_asked_by_a_public_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "ada")
    with fake_webhdfs(tmp_path) as url:
        assert WebHdfsFileSystem.for_path(url).home() == f"{url}/user/ada"
        # Asked again of the same client, which keeps what it was told.
        assert WebHdfsFileSystem.for_path(url).home() == f"{url}/user/ada"
        close_sessions()
