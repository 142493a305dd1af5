"""Runs an HTTP server of the tests in a thread, as long as a test needs it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import HTTPServer


@contextmanager
def running_in_thread(server: HTTPServer, name: str) -> Iterator[None]:
    """Serves in a thread of that name. At the end, thread and socket are gone."""
    # The end need not wait half a second.
    thread = threading.Thread(target=server.serve_forever, name=name, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
