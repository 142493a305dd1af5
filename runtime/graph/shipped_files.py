"""ShippedFiles: makes a payload of each file that a program ships, and names it in the JobGraph by its blob key.

Owner: the thread that submits. Reads local files; the caller stores the payloads. A file whose name a worker
must import is sent as a zip, which keeps the name. So a payload never contains a path of its host.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from yarrow.runtime.graph.executor import LocalFile
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile


def ship_files(job_graph: JobGraph, files: Sequence[LocalFile], store: Callable[[bytes], str]) -> JobGraph:
    """The graph with each file under the key that `store(payload)` gave it."""
    if not files:
        return job_graph
    shipped = [
        ShippedFile(
            name=file.name,
            kind=file.kind,
            blob_key=store(payload_of(file)),
            target=file.target,
            is_folder=os.path.isdir(file.path),
            executable=file.executable,
        )
        for file in files
    ]
    user_code = msgspec.structs.replace(job_graph.user_code, files=(*job_graph.user_code.files, *shipped))
    return msgspec.structs.replace(job_graph, user_code=user_code)


def archive_folders(files: Sequence[LocalFile]) -> list[str]:
    """The folders of unpacked archives, below the workers' working directory."""
    return [file.target or file.name for file in files if file.kind == "archive"]


def payload_of(file: LocalFile) -> bytes:
    """The payload of a file: the file itself, or the zip of `archive_of`."""
    archive = archive_of(file)
    return Path(file.path).read_bytes() if archive is None else archive


def archive_of(file: LocalFile) -> bytes | None:
    """A zip of a folder or of a module, which keeps its name; None = the file is sent as it is.

    A package is at the top of its zip. The content of any other folder is at the top: it is a part of the search
    path, or a cached folder.
    """
    path = Path(os.path.abspath(file.path))
    if path.is_dir():
        package = file.kind != "cached_file" and (path / "__init__.py").exists()
        return _zip(path.parent if package else path, path)
    if file.kind == "python_file" and not zipfile.is_zipfile(path):
        return _zip(path.parent, path)
    return None


def _zip(root: Path, content: Path) -> bytes:
    buffer = io.BytesIO()
    members = sorted(content.rglob("*")) if content.is_dir() else [content]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for member in members:
            if member.is_file() and "__pycache__" not in member.parts:
                # A fixed time: equal files make equal payloads, which are stored once.
                entry = zipfile.ZipInfo(str(member.relative_to(root)), (1980, 1, 1, 0, 0, 0))
                archive.writestr(entry, member.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()
