"""A false server that takes a job and answers as it likes: nothing of its answers runs in the client."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Iterator
from email.message import Message
from email.parser import BytesParser
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from yarrow.common import Configuration
from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream import StreamExecutionEnvironment
from yarrow.runtime.common.errors import UnreadableRowsError
from yarrow.runtime.common.ids import ExecutionAttemptID, JobID
from yarrow.runtime.graph.connector_spec import CollectOperator
from yarrow.runtime.graph.job_graph import JobGraph, decode_job_graph
from yarrow.runtime.rpc.messages import CollectRows


class Bomb:
    """Leaves a trace when it is unpickled."""

    def __init__(self, trace: Path) -> None:
        self.trace = trace

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.trace,)


class FalseServer:
    """Knows all that the client sends it: the job, and its token if it had one."""

    def __init__(self) -> None:
        server = self
        self.payload = b""
        self.graph: JobGraph | None = None
        self.asked: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if self.path == "/jobs":
                    server.graph = decode_job_graph(_file_of(self.headers, body))
                    self._answer(json.dumps({"jobUrl": f"/jobs/{server.graph.job_id}"}).encode())
                else:
                    self._answer(b'{"key": "k"}')

            def do_PATCH(self) -> None:
                self._answer(b"{}")

            def do_GET(self) -> None:
                server.asked.append(self.path)
                if "/collect/" in self.path:
                    self._answer(server.rows())
                elif self.path.endswith("/execution-result"):
                    self._answer(
                        b'{"status": {"id": "COMPLETED"},'
                        b' "job-execution-result": {"application-status": "CANCELED"}}'
                    )
                else:
                    self._answer(b'{"status": "RUNNING"}')

            def _answer(self, body: bytes) -> None:
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()

    def rows(self) -> bytes:
        """One message with the payload."""
        assert self.graph is not None
        collect_id = next(
            operator.spec.collect_id
            for vertex in self.graph.vertices
            for operator in vertex.operators
            if isinstance(operator.spec, CollectOperator)
        )
        message = CollectRows(
            job_id=JobID(self.graph.job_id),
            collect_id=collect_id,
            subtask=0,
            sequence=0,
            payload=self.payload,
            row_count=1,
            attempt_id=ExecutionAttemptID("a"),
            stream="-1-0",
            version="v",
            delivery=0,
        )
        return msgspec.msgpack.encode((message,))

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _file_of(headers: Message, body: bytes) -> bytes:
    """The job's graph of a multipart request."""
    head = f"Content-Type: {headers['Content-Type']}\r\n\r\n".encode()
    parts = BytesParser().parsebytes(head + body).get_payload()
    assert isinstance(parts, list)
    data = parts[1].get_payload(decode=True)  # type: ignore[union-attr]
    assert isinstance(data, bytes)
    return data


@pytest.fixture
def server() -> Iterator[FalseServer]:
    server = FalseServer()
    yield server
    server.close()


@pytest.mark.parametrize("declared", [None, Types.LONG(), Types.PICKLED_BYTE_ARRAY()], ids=str)
def test_rows_of_a_false_server_run_nothing(
    server: FalseServer, tmp_path: Path, declared: TypeInformation | None
) -> None:
    trace = tmp_path / "trace"
    bomb = pickle.dumps([Bomb(trace)])
    plain = b"\x12" + msgspec.msgpack.encode(([], [[29, bomb]]))
    answers = [
        bomb,
        b"\x01" + bomb,
        b"\x02" + plain,
        b"\x03" + msgspec.msgpack.encode((0, None, None, [plain])),
        b"\x04" + bytes(32) + bytes(4) + bomb,
    ]
    for server.payload in answers:
        configuration = Configuration()
        configuration.set_string("execution.target", "remote")
        configuration.set_string("rest.address", "127.0.0.1")
        configuration.set_string("rest.port", str(server.port))
        # The client of a cluster whose secrets are elsewhere.
        configuration.set_string("security.cluster.directory", str(tmp_path / "none"))
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        numbers = env.from_sequence(1, 3)
        stream = numbers.map(lambda x: x) if declared is None else numbers.map(lambda x: x, declared)
        rows = stream.execute_and_collect()
        with pytest.raises(UnreadableRowsError, match=r"execute_and_collect"):
            next(rows)
        rows.close()
    assert not trace.exists()
    assert any("/collect/" in path for path in server.asked)
