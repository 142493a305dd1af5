"""Private members of libraries that we use: each is listed, still there, and still does its part.

A version of a library without one of them fails here, by name, and not in a cluster that loses its leader. What each is
needed for stands beside its use.
"""

from __future__ import annotations

import ast
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import hdfs
import pytest
import requests
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler

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
