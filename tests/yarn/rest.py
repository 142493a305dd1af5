"""REST of an application on YARN, asked as its user asks: with the token of the client's own file."""

from __future__ import annotations

import json
import urllib.request
from pathlib import Path
from typing import Any

import msgspec

from yarrow.runtime.yarn.application import ClientSecrets


def client_secrets(files: Path, application: str) -> ClientSecrets:
    """What the client keeps of an application in its folder of files."""
    (path,) = files.glob(f".yarrow-application-{application}")
    return msgspec.json.decode(path.read_bytes(), type=ClientSecrets)


def ask(address: str, token: str, path: str, method: str = "GET", seconds: float = 30.0) -> Any:
    """The answer; OSError, as HTTPError where there is a status, for every other one."""
    request = urllib.request.Request(f"{address}{path}", method=method)
    request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=seconds) as answer:
        return json.loads(answer.read() or b"{}")
