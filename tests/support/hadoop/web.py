"""The web interfaces of Hadoop as a test asks them: JSON by GET, folders by WebHDFS, ZooKeeper's one word.

Owner: any thread; every call blocks for a minute at most. Goes past the proxies of the environment: everything
is on loopback.
"""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from tests.support.hadoop.layout import LOOPBACK

#: Seconds for an answer: on a busy machine a daemon may be slow.
_SECONDS = 60.0
#: Of an answer that is an error, how many bytes are passed on.
_MAX_SAID = 1000
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(url: str) -> Any:
    """The JSON at a URL. Raises OSError where nobody answers in time or the answer is an error."""
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    return _send(request)


def name_node_state(port: int) -> dict[str, Any]:
    """The NameNode's figures of its file system: FSState, NumLiveDataNodes and more."""
    query = "Hadoop:service=NameNode,name=FSNamesystemState"
    beans = get(f"http://{LOOPBACK}:{port}/jmx?qry={quote(query)}")["beans"]
    return dict(beans[0]) if beans else {}


def name_node_has_started(port: int) -> bool:
    """Whether the NameNode has read what it keeps and has left safe mode since it began.

    Its pages come before that, and for a moment they call a file system operational that takes no request yet.
    """
    query = "get=Hadoop:service=NameNode,name=StartupProgress::PercentComplete"
    beans = get(f"http://{LOOPBACK}:{port}/jmx?{query}")["beans"]
    return bool(beans) and float(beans[0]["PercentComplete"]) == 1.0


def make_folder(port: int, path: str, permission: str, user: str) -> None:
    """Makes a folder of HDFS, and sets the permission of one that is there."""
    for operation in ("MKDIRS", "SETPERMISSION"):
        query = urlencode({"op": operation, "permission": permission, "user.name": user})
        url = f"http://{LOOPBACK}:{port}/webhdfs/v1{quote(path)}?{query}"
        _send(urllib.request.Request(url, method="PUT"))


def delete_folder(port: int, path: str, user: str) -> None:
    """Removes a folder of HDFS with everything in it; nothing happens where there is none."""
    query = urlencode({"op": "DELETE", "recursive": "true", "user.name": user})
    _send(
        urllib.request.Request(f"http://{LOOPBACK}:{port}/webhdfs/v1{quote(path)}?{query}", method="DELETE")
    )


def files_below(
    port: int, path: str, user: str, is_kept: Callable[[str], bool] = lambda folder: False
) -> list[str]:
    """All files below a folder of HDFS, and its empty folders; nothing where there is no such folder.

    A folder that `is_kept` is not looked into: its own path stands for all that is in it.
    """
    query = urlencode({"op": "LISTSTATUS", "user.name": user})
    try:
        listed = get(f"http://{LOOPBACK}:{port}/webhdfs/v1{quote(path)}?{query}")["FileStatuses"][
            "FileStatus"
        ]
    except urllib.error.HTTPError as error:
        if error.code == HTTPStatus.NOT_FOUND:
            return []
        raise
    found: list[str] = []
    for entry in listed:
        name = f"{path.rstrip('/')}/{entry['pathSuffix']}"
        is_open = entry["type"] == "DIRECTORY" and not is_kept(name)
        below = files_below(port, name, user, is_kept) if is_open else []
        found += below or [name]
    return found


def ask_zookeeper(port: int, word: str) -> str:
    """The answer to one of ZooKeeper's four-letter words."""
    with socket.create_connection((LOOPBACK, port), _SECONDS) as connection:
        connection.sendall(word.encode())
        parts = iter(lambda: connection.recv(4096), b"")
        return b"".join(parts).decode()


def _send(request: urllib.request.Request) -> Any:
    try:
        with _opener.open(request, timeout=_SECONDS) as answer:
            body = answer.read()
    except urllib.error.HTTPError as error:
        # HDFS says 403 for whatever it cannot do at the moment: only the text tells what that was.
        with error:
            said = error.read(_MAX_SAID).decode(errors="replace")
        text = f"{error.reason} to {request.get_method()} {request.full_url}: {said}"
        raise urllib.error.HTTPError(request.full_url, error.code, text, error.headers, None) from None
    return json.loads(body) if body else None
