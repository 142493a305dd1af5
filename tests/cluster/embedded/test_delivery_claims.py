"""A sink without a wish keeps the strongest guarantee that holds in its job: seen in the rows that it shows."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from yarrow.common import Configuration
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.embedded.mini_cluster import mini_cluster
from yarrow.testing.transactional_files import CommittedFiles, TransactionalFiles

pytestmark = pytest.mark.cluster


def test_an_unbounded_job_without_checkpoints_shows_its_rows_while_it_runs(tmp_path: Path) -> None:
    """No checkpoint will commit them: exactly once would show nothing, and is no claim of this job."""
    committed, shown = CommittedFiles(tmp_path), threading.Event()
    env = StreamExecutionEnvironment.get_execution_environment(Configuration.from_dict({}))
    with socket.create_server(("127.0.0.1", 0)) as server, mini_cluster(processes=False):
        lines = env.socket_text_stream("127.0.0.1", server.getsockname()[1])
        lines.sink_to(TransactionalFiles(str(tmp_path))).set_parallelism(1)
        client = env.execute_async("lines")
        connection, _ = server.accept()
        with connection:
            connection.sendall(b"one\ntwo\n")
            # The source ends when the connection does, and that commits the rows in any case.
            while not committed.rows() and not client.get_job_status().result().is_terminal_state():
                shown.wait(0.01)
            assert committed.rows() == ["one", "two"]
        client.get_job_execution_result().result()
    assert not committed.leftovers() and not committed.committed_twice()
