"""Containers of a cluster as the machine sees them: their processes and their logs.

Owner: the caller's thread. A process belongs to a container when it works below the cluster's local folders or
was started with them in its environment, whatever became of its parents or of the NodeManager.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.hadoop.layout import NODE_MANAGERS, Layout
from tests.support.services.processes import ProcessRecord, identify
from tests.support.services.serving import tail

_APPLICATION = re.compile(r"application_\d+_\d+")
_CONTAINER = re.compile(r"container_(?:e\d+_)?(\d+_\d+)_\d+_\d+")
#: Files that the NodeManager writes beside a container's own logs.
_OF_NODE_MANAGER = {"launch_container.sh", "directory.info", "prelaunch.out"}


@dataclass(frozen=True)
class ContainerProcess:
    """One process of a container; `application` and `container` are empty where they cannot be told."""

    record: ProcessRecord
    application: str
    container: str
    command: str

    @property
    def pid(self) -> int:
        return self.record.pid


def processes(layout: Layout) -> list[ContainerProcess]:
    """All processes of all containers of the cluster, also those that their NodeManager has lost."""
    roots = [os.path.realpath(layout.local_dir(name)) + os.sep for name in NODE_MANAGERS]
    found = []
    for pid in _pids():
        place = _place_of(pid, roots)
        record = identify(pid) if place else None
        if record is not None:
            found.append(ContainerProcess(record, *names_in(place), _command_of(pid)))
    return found


def names_in(place: str) -> tuple[str, str]:
    """The application's and the container's id in a path or a list of variables; empty where there is none."""
    container = _CONTAINER.search(place)
    application = _APPLICATION.search(place)
    if application is not None:
        return application.group(), container.group() if container else ""
    return (f"application_{container.group(1)}", container.group()) if container else ("", "")


def local_logs(layout: Layout, application: str, size: int) -> dict[str, str]:
    """The last `size` bytes of each log that containers have left on a node, by `container/file`."""
    found = {}
    for name in NODE_MANAGERS:
        for path in sorted((layout.log_dir(name) / application).glob("container_*/*")):
            if path.is_file() and path.name not in _OF_NODE_MANAGER:
                found[f"{path.parent.name}/{path.name}"] = tail(path, size)
    return found


def _pids() -> Iterator[int]:
    yield from (int(entry) for entry in os.listdir("/proc") if entry.isdigit())


def _place_of(pid: int, roots: list[str]) -> str:
    """The text that tells the container of a process; empty when it is in none of this cluster's."""
    try:
        folder = os.readlink(f"/proc/{pid}/cwd").removesuffix(" (deleted)")
        if any(f"{folder}/".startswith(root) for root in roots) and _CONTAINER.search(folder):
            return folder
        with open(f"/proc/{pid}/environ", "rb", buffering=0) as file:
            variables = file.read()
    except OSError:
        return ""
    # Tests look at every process of the machine again and again: most are told by their bytes.
    if b"LOCAL_DIRS=" not in variables:
        return ""
    texts = variables.decode(errors="replace").split("\0")
    own = [text for text in texts if text.startswith(("LOCAL_DIRS=", "CONTAINER_ID="))]
    return " ".join(own) if any(root in text for text in own for root in roots) else ""


def _command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return ""
