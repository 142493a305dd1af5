"""Descriptors of .proto files: as base64 in a registry, with those that they import, and the messages in them.

Owner: any thread; pure. Confluent's client for Python registers descriptors in base64. Its registry makes text of them,
and Apicurio's gives them back as they are. Must not run a compiler.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from yarrow.datastream.formats.protobuf.message_type import ProtobufType, protobuf_library
from yarrow.datastream.formats.registry.protobuf.known_files import KNOWN_FILES
from yarrow.runtime.common.errors import InvalidProgramError

#: A text of a .proto file has signs beside these.
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_WELL_KNOWN: Final = re.compile(r"google/protobuf/(\w+)\.proto")


def encoded_file(file: Any) -> str:
    """Return a descriptor as registries take it for a text."""
    return base64.b64encode(file.SerializeToString(deterministic=True)).decode()


def described_file(text: str, name: str) -> Any:
    """Return the descriptor in a text, under this name; None for the text of a .proto file.

    Raises InvalidProgramError for base64 of something else.
    """
    if not _BASE64.fullmatch(text):
        return None
    try:
        file = protobuf_library("descriptor_pb2").FileDescriptorProto.FromString(base64.b64decode(text))
    except (ValueError, protobuf_library("message").DecodeError) as error:
        raise InvalidProgramError(f"the schema is neither a .proto file nor a descriptor: {error}") from None
    file.name = name
    return file


def with_imports(
    file: Any, referred: Mapping[str, str], known: Callable[[], Mapping[str, bytes]] = dict
) -> Any:
    """Return the set of a file and of those that it imports, which come first.

    `known`: gives the descriptors of KNOWN_FILES, if one is imported. Raises InvalidProgramError for an import that is
    missing, or that is the text of a .proto file.
    """
    found: dict[str, Any] = {}
    _add(file, referred, known, found)
    files = protobuf_library("descriptor_pb2").FileDescriptorSet()
    files.file.extend(found.values())
    return files


def _add(
    file: Any, referred: Mapping[str, str], known: Callable[[], Mapping[str, bytes]], found: dict[str, Any]
) -> None:
    for name in file.dependency:
        if name not in found:
            _add(_imported(name, referred, known), referred, known, found)
    found[file.name] = file


def _imported(name: str, referred: Mapping[str, str], known: Callable[[], Mapping[str, bytes]]) -> Any:
    if name in referred:
        file = described_file(referred[name], name)
        if file is None:
            raise InvalidProgramError(
                f"the schema is a descriptor in base64 and imports {name}, which is text in the registry. Register both"
                " in one form"
            )
        return file
    descriptors = protobuf_library("descriptor_pb2")
    if name in KNOWN_FILES:
        return descriptors.FileDescriptorProto.FromString(known()[name])
    of_library = _WELL_KNOWN.fullmatch(name)
    if of_library is None:
        raise InvalidProgramError(
            f"the schema imports {name}, which is none of its references in the registry"
        )
    return descriptors.FileDescriptorProto.FromString(
        protobuf_library(f"{of_library[1]}_pb2").DESCRIPTOR.serialized_pb
    )


def file_of(message_type: ProtobufType) -> Any:
    """Return the descriptor of the file that has a message type."""
    return next(
        file
        for file in message_type.files().values()
        if any(name == message_type.message_name for name, _ in _messages(file))
    )


def needed_references(file: Any) -> list[str]:
    """Return the imports of a file that only references of a registry can give."""
    return [name for name in file.dependency if not (name in KNOWN_FILES or _WELL_KNOWN.fullmatch(name))]


def indexes_in(file: Any, message_name: str) -> tuple[int, ...]:
    """Return the path of a message by its full name. Raises InvalidProgramError if the file has none."""
    names = []
    for name, indexes in _messages(file):
        if name == message_name:
            return indexes
        names.append(name)
    raise InvalidProgramError(
        f"the schema has no message {message_name!r}; it has {', '.join(names[:20])}. Give the full name with the"
        " package"
    )


def _messages(file: Any) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The full names of a file's messages with their paths."""

    def walk(messages: Any, before: str, path: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
        for index, message in enumerate(messages):
            name, inner = f"{before}{message.name}", (*path, index)
            yield name, inner
            yield from walk(message.nested_type, f"{name}.", inner)

    return walk(file.message_type, f"{file.package}." if file.package else "", ())
