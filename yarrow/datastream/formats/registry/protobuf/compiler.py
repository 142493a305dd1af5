"""The text of a .proto file with those that it imports, compiled to descriptors.

Owner: the calling thread, which waits about 0.1 s. Registries give schemas as text, so protoc of the package
grpcio-tools compiles them. It runs in a process of its own, which is all that a damaged text can end. Must not ask a
registry.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from yarrow.datastream.formats.protobuf.message_type import ProtobufType, protobuf_library
from yarrow.datastream.formats.registry.errors import CompilerUnavailableError
from yarrow.datastream.formats.registry.protobuf.descriptors import described_file, indexes_in, with_imports
from yarrow.datastream.formats.registry.protobuf.known_files import KNOWN_FILES
from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError

#: The name of a file whose text has none, which no import names.
_MAIN: Final = "yarrow_registered_schema.proto"
_SECONDS: Final = 60.0
_LOGGED: Final = re.compile(r"[IWE]\d{4} ")


def require_compiler() -> None:
    """Raise UnsupportedFeatureError with the command that installs protoc, if it is not there."""
    protobuf_library("descriptor_pb2")
    if find_spec("grpc_tools") is None:
        raise UnsupportedFeatureError(
            "Protobuf with a schema registry needs the package grpcio-tools, whose protoc compiles the registry's"
            " schemas. Run `pip install 'yarrow[kafka]'` in the environment of the program and in that of the"
            " workers"
        )


class CompiledSchema:
    """A .proto file with those that it imports; made by `of`."""

    def __init__(self, descriptor_set: bytes, file: Any) -> None:
        self._descriptor_set = descriptor_set
        self._file = file

    @staticmethod
    def of(text: str, referred: Mapping[str, str] | None = None) -> CompiledSchema:
        """Return the descriptors of a text that imports others by these names.

        The text may be a descriptor in base64. Raises InvalidProgramError, with protoc's words, for one that is no
        schema, and CompilerUnavailableError if protoc does not run.
        """
        require_compiler()
        imported = referred or {}
        if (described := described_file(text, _MAIN)) is not None:
            found = with_imports(described, imported, _known_descriptors)
            return CompiledSchema(found.SerializeToString(), described)
        compiled = _compiled_texts({**KNOWN_FILES, **imported, _MAIN: text})
        files = protobuf_library("descriptor_pb2").FileDescriptorSet.FromString(compiled)
        (file,) = (file for file in files.file if file.name == _MAIN)
        return CompiledSchema(compiled, file)

    def message(self, indexes: Sequence[int]) -> ProtobufType:
        """Return the message at a path of positions. Raises InvalidProgramError if the file has none there."""
        name, messages = self._file.package, self._file.message_type
        for index in indexes:
            if index >= len(messages):
                raise InvalidProgramError(
                    f"the schema has no message at the message indexes {list(indexes)}: {name or 'its file'} has"
                    f" {len(messages)} messages"
                )
            found: Any = messages[index]
            name, messages = f"{name}.{found.name}".lstrip("."), found.nested_type
        return ProtobufType.of_descriptor_set(self._descriptor_set, name)

    def indexes_of(self, message_name: str) -> tuple[int, ...]:
        """Return the path of a message by its full name. Raises InvalidProgramError if the file has none."""
        return indexes_in(self._file, message_name)


@cache
def _known_descriptors() -> Mapping[str, bytes]:
    """The descriptors of KNOWN_FILES by their names."""
    imports = "".join(f'import "{name}";\n' for name in KNOWN_FILES)
    compiled = _compiled_texts({**KNOWN_FILES, _MAIN: f'syntax = "proto3";\n{imports}'})
    files = protobuf_library("descriptor_pb2").FileDescriptorSet.FromString(compiled)
    return {file.name: file.SerializeToString() for file in files.file if file.name in KNOWN_FILES}


def _compiled_texts(texts: Mapping[str, str]) -> bytes:
    """Return the set of descriptors of _MAIN among these files, with those that it imports."""
    try:
        with tempfile.TemporaryDirectory(prefix="yarrow-protoc-") as folder:
            for name, text in texts.items():
                _written(Path(folder), name, text)
            return _compiled(Path(folder))
    except OSError as error:
        raise CompilerUnavailableError(
            f"protoc cannot be run on this machine: {error}. Repair its environment, or its folder for temporary files"
        ) from error


def _written(folder: Path, name: str, text: str) -> None:
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts or "\0" in name:
        raise InvalidProgramError(
            f"the schema imports {name!r}, which is no name of a .proto file in a folder"
        )
    path = folder / relative
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _compiled(folder: Path) -> bytes:
    target = folder / "descriptors"
    # The package's main adds the types of google.protobuf. Its folder must not be that of the texts.
    command = [sys.executable, "-P", "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    try:
        ran = subprocess.run(
            [*command, f"--descriptor_set_out={target}", _MAIN],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompilerUnavailableError(
            f"protoc has not compiled a schema within {_SECONDS:g} s. Look at the load of this machine"
        ) from None
    if ran.returncode == 0 and target.exists():
        return target.read_bytes()
    lines = [line for line in ran.stderr.splitlines() if ".proto" in line and not _LOGGED.match(line)]
    if ran.returncode < 0 or not lines:
        raise CompilerUnavailableError(
            f"protoc, run by {sys.executable}, has ended with status {ran.returncode}:"
            f" {ran.stderr.strip()[:500]}. Repair the environment of this machine"
        )
    problem = " ".join(lines).replace(f"{folder}/", "").replace(f"{_MAIN}:", "line ")[:500]
    raise InvalidProgramError(f"protoc does not compile the schema: {problem}")
