"""A name node and data node in one small HTTP server, over a folder: enough of WebHDFS for the client."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.services.http_threads import running_in_thread


@dataclass
class Fault:
    """What happens to the next requests of one operation: an exception as Hadoop tells it, else a broken connection."""

    operation: str
    exception: str = ""
    message: str = "a fault"
    times: int = 1
    #: The request that brings the data, not the one that asks where to.
    has_data: bool = False
    #: The operation is carried out, its answer lost.
    after: bool = False
    #: Bytes of the answer before it breaks off.
    half: bytes = b""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Headers and body go out in two writes: the second would wait for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    root: ClassVar[Path]
    #: Shared by all requests of a server.
    faults: ClassVar[list[Fault]]
    #: What each file was created with; empty = what is configured.
    replications: ClassVar[dict[str, str]]
    #: Every address that was asked.
    asked: ClassVar[list[str]]

    def log_message(self, format: str, *args: object) -> None:
        return None

    def handle_any(self) -> None:
        self.asked.append(self.path)
        url = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        name = unquote(url.path).removeprefix("/webhdfs/v1")
        fault = self.fault_of(query["op"].lower(), "data" in query)
        if fault is not None and not fault.after:
            self.suffer(fault)
            return
        if fault is not None:
            self.answer = lambda body, code=200: self.suffer(fault)  # type: ignore[method-assign]
        try:
            getattr(self, "op_" + query["op"].lower())(self.root / name.lstrip("/"), name, query)
        except FileNotFoundError:
            self.fail(404, "FileNotFoundException", f"File does not exist: {name}")

    do_GET = do_PUT = do_DELETE = do_POST = handle_any

    def fault_of(self, operation: str, has_data: bool) -> Fault | None:
        for fault in self.faults:
            if fault.operation == operation and fault.times > 0 and fault.has_data == has_data:
                fault.times -= 1
                return fault
        return None

    def suffer(self, fault: Fault) -> None:
        self.__dict__.pop("answer", None)
        self.close_connection = True
        if fault.exception:
            self.fail(403, fault.exception, fault.message)
        elif fault.half:
            self.send_response(200)
            self.send_header("Content-Length", str(len(fault.half) + 1))
            self.end_headers()
            self.wfile.write(fault.half)

    def answer(self, body: Any, code: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, code: int, exception: str, message: str) -> None:
        self.answer({"RemoteException": {"exception": exception, "message": message}}, code)

    def op_gethomedirectory(self, path: Path, name: str, query: dict[str, str]) -> None:
        self.answer({"Path": f"/user/{query['user.name']}"})

    def op_getfilestatus(self, path: Path, name: str, query: dict[str, str]) -> None:
        self.answer({"FileStatus": _status(path, "")})

    def op_liststatus(self, path: Path, name: str, query: dict[str, str]) -> None:
        if not path.exists():
            raise FileNotFoundError
        entries = [_status(entry, entry.name) for entry in path.iterdir()]
        self.answer({"FileStatuses": {"FileStatus": entries}})

    def op_open(self, path: Path, name: str, query: dict[str, str]) -> None:
        self.answer(path.read_bytes()[int(query.get("offset", 0)) :])

    def op_create(self, path: Path, name: str, query: dict[str, str]) -> None:
        if "data" not in query:
            self.send_response(307)
            self.send_header("Location", f"http://{self.headers['Host']}{self.path}&data=true")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self.body())
        self.replications[name] = query.get("replication", "")
        self.answer(b"", 201)

    def op_rename(self, path: Path, name: str, query: dict[str, str]) -> None:
        target = self.root / query["destination"].lstrip("/")
        done = path.exists() and not target.exists() and target.parent.exists()
        if done:
            path.rename(target)
        self.answer({"boolean": done})

    def op_mkdirs(self, path: Path, name: str, query: dict[str, str]) -> None:
        path.mkdir(parents=True, exist_ok=True)
        self.answer({"boolean": True})

    def op_settimes(self, path: Path, name: str, query: dict[str, str]) -> None:
        found = path.stat()
        times = [found.st_atime_ns, found.st_mtime_ns]
        for index, key in enumerate(("accesstime", "modificationtime")):
            if int(query.get(key, -1)) >= 0:
                times[index] = int(query[key]) * 1_000_000
        os.utime(path, ns=(times[0], times[1]))
        self.answer(b"")

    def op_delete(self, path: Path, name: str, query: dict[str, str]) -> None:
        there = path.exists()
        if path.is_dir() and query.get("recursive", "false").lower() == "true":
            shutil.rmtree(path)
        elif path.is_dir():
            if any(path.iterdir()):
                self.fail(
                    403, "PathIsNotEmptyDirectoryException", f"`{name} is non empty': Directory is not empty"
                )
                return
            path.rmdir()
        elif there:
            path.unlink()
        self.answer({"boolean": there})

    def body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length", 0)))
        data = b""
        while size := int(self.rfile.readline(), 16):
            data += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return data


def _status(path: Path, suffix: str) -> dict[str, Any]:
    found = path.stat()
    return {
        "pathSuffix": suffix,
        "type": "DIRECTORY" if path.is_dir() else "FILE",
        "length": 0 if path.is_dir() else found.st_size,
        "modificationTime": found.st_mtime_ns // 1_000_000,
        "accessTime": found.st_atime_ns // 1_000_000,
    }


@contextmanager
def fake_webhdfs(
    root: Path,
    faults: list[Fault] | None = None,
    port: int = 0,
    replications: dict[str, str] | None = None,
    asked: list[str] | None = None,
) -> Iterator[str]:
    """Serves a folder; gives `webhdfs://host:port`. What is done is noted in `replications` and `asked`."""
    shared = {
        "root": root,
        "faults": faults if faults is not None else [],
        "replications": replications if replications is not None else {},
        "asked": asked if asked is not None else [],
    }
    handler = type("Handler", (_Handler,), shared)
    server = ThreadingHTTPServer(("127.0.0.1", port), handler)
    server.daemon_threads = True
    with running_in_thread(server, "webhdfs"):
        yield f"webhdfs://127.0.0.1:{server.server_address[1]}"
