"""Pages: the pages at `/` for browsers, from an archive such as Flink's compiled page.

Owner: the event loop of the REST server; threads read files of the archive. A path from a request is looked
up among the names that the archive had when it was opened. It never becomes a path of a file.
"""

from __future__ import annotations

import asyncio
import logging
import posixpath
import threading
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from yarrow.runtime.config.web_pages import FIRST_PAGE, FOLDER

_log = logging.getLogger(__name__)

#: Most bytes of a page's member; a larger one is no part of a page.
_MOST_BYTES = 32 << 20
_HTML = "text/html; charset=utf-8"
_KINDS: Final = {
    ".html": _HTML,
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".ttf": "font/ttf",
    ".woff": "font/woff",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
    ".xml": "text/xml",
}
#: Flink's page writes styles and one handler into its HTML, and starts workers for its editor. It needs no
#: other host, and no page of another server may frame it.
_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " font-src 'self' data:; worker-src 'self' blob:; object-src 'none'; base-uri 'self'; frame-ancestors 'self'"
)
_NO_PAGE: Final = b"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Yarrow</title>
<p>This server has no dashboard. <code>yarrow dashboard</code>, run once where clusters are started from, gets Flink's,
which clusters started after that show here; <code>web.pages: none</code> leaves it out.</p>
<p>What there is to ask for: <a href="docs">REST API</a>.</p>
</html>
"""


class Pages(BaseRoute):
    """Answers GET for `/` and, where there is an archive, for each of its pages; nothing else matches."""

    def __init__(self, archive: Path | None) -> None:
        self._lock = threading.Lock()
        self._archive, self._members = _opened(archive)

    def close(self) -> None:
        """Closes the archive."""
        if self._archive is not None:
            self._archive.close()

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        known = scope["path"] == "/" or scope["path"] in self._members
        readable = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        return (Match.FULL if known and readable else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        member = self._members.get(f"/{FIRST_PAGE}" if path == "/" else path)
        if member is None:
            response = Response(_NO_PAGE, media_type=_HTML, headers=_headers(_HTML))
        else:
            kind = _KINDS.get(posixpath.splitext(member.filename)[1], "application/octet-stream")
            content = await asyncio.to_thread(self._read, member)
            response = Response(content, media_type=kind, headers=_headers(kind))
        await response(scope, receive, send)

    def _read(self, member: zipfile.ZipInfo) -> bytes:
        assert self._archive is not None
        with self._lock:
            return self._archive.read(member)


def _headers(kind: str) -> dict[str, str]:
    # The names of all pages but the first change with their content.
    kept = "no-cache" if kind == _HTML else "private, max-age=3600"
    return {"cache-control": kept, "content-security-policy": _POLICY}


def _opened(path: Path | None) -> tuple[zipfile.ZipFile | None, Mapping[str, zipfile.ZipInfo]]:
    """The archive and its pages by the paths at which they are shown."""
    if path is None:
        return None, {}
    try:
        archive = zipfile.ZipFile(path)
    except (OSError, zipfile.BadZipFile) as error:
        _log.warning("the dashboard is not shown: %s cannot be read: %s", path, error)
        return None, {}
    members = {
        f"/{member.filename.removeprefix(FOLDER)}": member
        for member in archive.infolist()
        if member.filename.startswith(FOLDER) and not member.is_dir() and member.file_size <= _MOST_BYTES
    }
    return archive, members
