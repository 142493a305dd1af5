"""A ZooKeeper server that has taken a connection and says nothing any more does not hold up who ends."""

from __future__ import annotations

import socket
import struct
import threading

from yarrow.runtime.ha.settings import ZooKeeperSettings
from yarrow.runtime.ha.zookeeper_client import ZooKeeperClient

SESSION_MS = 60_000


def greets_once(server: socket.socket, over: threading.Event) -> None:
    """Answers one handshake, by ZooKeeper's protocol, and nothing else."""
    connection, _ = server.accept()
    with connection:
        (length,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        connection.recv(length, socket.MSG_WAITALL)
        answer = struct.pack("!iiqi16s?", 0, SESSION_MS, 1, 16, bytes(16), False)
        connection.sendall(struct.pack("!i", len(answer)) + answer)
        over.wait()


def test_the_end_of_a_session_is_not_waited_for_long() -> None:
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:
        greeting = threading.Thread(target=greets_once, args=(server, over))
        greeting.start()
        settings = ZooKeeperSettings(
            quorum=f"127.0.0.1:{server.getsockname()[1]}", root="/r", session_timeout=SESSION_MS / 1000
        )
        client = ZooKeeperClient(settings)
        client.start()
        stopping = threading.Thread(target=client.stop)
        stopping.start()
        # Far below the session.
        stopping.join(SESSION_MS / 1000 - 10)
        stopped = not stopping.is_alive()
        over.set()
        greeting.join()
        stopping.join()
    assert stopped
