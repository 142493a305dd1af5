"""A name node and data node in one small HTTP server, over a folder: enough of WebHDFS for the client."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qs, unquote, urlsplit


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Headers and body go out in two writes: the second would wait for the client's delayed acknowledgement.
    disable_nagle_algorithm = True
    root: ClassVar[Path]

    def log_message(self, format: str, *args: object) -> None:
        return None

    def handle_any(self) -> None:
        url = urlsplit(self.path)
        query = {name.lower(): values[0] for name, values in parse_qs(url.query).items()}
        name = unquote(url.path).removeprefix("/webhdfs/v1")
        try:
            getattr(self, "op_" + query["op"].lower())(self.root / name.lstrip("/"), name, query)
        except FileNotFoundError:
            self.fail(404, "FileNotFoundException", f"File does not exist: {name}")

    do_GET = do_PUT = do_DELETE = do_POST = handle_any

    def answer(self, body: Any, code: int = 200) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def fail(self, code: int, exception: str, message: str) -> None:
        self.answer({"RemoteException": {"exception": exception, "message": message}}, code)

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

    def op_delete(self, path: Path, name: str, query: dict[str, str]) -> None:
        there = path.exists()
        if path.is_dir() and query.get("recursive", "false").lower() == "true":
            shutil.rmtree(path)
        elif path.is_dir():
            if any(path.iterdir()):
                self.fail(403, "PathIsNotEmptyDirectoryException", f"`{name} is non empty': Directory is not empty")
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
        "modificationTime": int(found.st_mtime * 1000),
    }


@contextmanager
def fake_webhdfs(root: Path) -> Iterator[str]:
    """Serves a folder; gives `webhdfs://host:port`."""
    handler = type("Handler", (_Handler,), {"root": root})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"webhdfs://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
