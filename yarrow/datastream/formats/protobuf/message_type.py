"""ProtobufType: the type of a message, from a generated class or a descriptor set, that travels with the program.

Owner: any thread; types do not change. The protobuf library is imported where a type is made, so that a program can
name the class without it. Must not read or write messages.
"""

from __future__ import annotations

import importlib
from functools import cached_property
from typing import Any

from yarrow.runtime.common.errors import InvalidProgramError, UnsupportedFeatureError
from yarrow.runtime.fs.registry import file_system_for


def protobuf_library(module: str) -> Any:
    """Return a module of the protobuf library. Raises UnsupportedFeatureError with the command that installs it."""
    try:
        return importlib.import_module(f"google.protobuf.{module}")
    except ModuleNotFoundError as error:
        raise UnsupportedFeatureError(
            f"Protobuf needs the package protobuf, which cannot be imported here ({error}). Run"
            " `pip install 'yarrow[protobuf]'` in the environment of the program and in that of the workers"
        ) from error


class ProtobufType:
    """The type of a message; made by `of_class`, `of_descriptor_set` or `of_file`.

    It holds the descriptors of the message, so that workers need no generated module.
    """

    def __init__(self, descriptor_set: bytes, message_name: str) -> None:
        self._descriptor_set = descriptor_set
        #: The full name, with the package.
        self.message_name = message_name

    @staticmethod
    def of_class(message_class: Any) -> ProtobufType:
        """The type of a class that protoc has generated. Raises InvalidProgramError for another class."""
        descriptors = protobuf_library("descriptor_pb2")
        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if not isinstance(descriptor, protobuf_library("descriptor").Descriptor):
            raise InvalidProgramError(
                f"ProtobufType: a class that protoc has generated is expected, not {message_class!r}"
            )
        found: dict[str, bytes] = {}
        _add_with_imports(descriptor.file, found)
        files = descriptors.FileDescriptorSet()
        for content in found.values():
            files.file.add().ParseFromString(content)
        return ProtobufType.of_descriptor_set(files.SerializeToString(), descriptor.full_name)

    @staticmethod
    def of_descriptor_set(descriptor_set: bytes, message_name: str) -> ProtobufType:
        """The type of that full name in the output of `protoc --include_imports --descriptor_set_out`.

        Raises InvalidProgramError for bytes that are no such set, and for a name that is not in it.
        """
        made = ProtobufType(descriptor_set, message_name)
        made.message_class  # noqa: B018 - a fault is told here, not in the task
        return made

    @staticmethod
    def of_file(path: str, message_name: str) -> ProtobufType:
        """The type in a descriptor set of any file system, read now. Raises as `of_descriptor_set`, and OSError."""
        protobuf_library("descriptor_pb2")
        with file_system_for(path).open(path) as stream:
            content = stream.read()
        return ProtobufType.of_descriptor_set(content, message_name)

    @cached_property
    def message_class(self) -> Any:
        """The class of the messages, in a pool of its own."""
        files = self.files()
        pool = protobuf_library("descriptor_pool").DescriptorPool()
        added: set[str] = set()

        def add(name: str) -> None:
            if name not in files:
                raise TypeError(f"{name} is missing")
            if name not in added:
                added.add(name)
                for imported in files[name].dependency:
                    add(imported)
                pool.AddSerializedFile(files[name].SerializeToString())

        try:
            for name in files:
                add(name)
        except TypeError as error:
            raise InvalidProgramError(
                f"ProtobufType: these descriptors are not complete; make them with --include_imports: {error}"
            ) from error
        try:
            descriptor = pool.FindMessageTypeByName(self.message_name)
        except KeyError:
            found = sorted(
                f"{file.package}.{message.name}".lstrip(".")
                for file in files.values()
                for message in file.message_type
            )
            raise InvalidProgramError(
                f"ProtobufType: no message {self.message_name!r} among {found}; give the full name with the package"
            ) from None
        return protobuf_library("message_factory").GetMessageClass(descriptor)

    def files(self) -> dict[str, Any]:
        """Return the descriptors of files by name. Raises InvalidProgramError for bytes that are none."""
        files = protobuf_library("descriptor_pb2").FileDescriptorSet()
        try:
            files.ParseFromString(self._descriptor_set)
        except protobuf_library("message").DecodeError as error:
            raise InvalidProgramError(
                f"ProtobufType: {len(self._descriptor_set)} bytes are no descriptor set; make one with protoc"
                f" --include_imports --descriptor_set_out=FILE: {error}"
            ) from error
        return {file.name: file for file in files.file}

    def __getstate__(self) -> tuple[bytes, str]:
        return self._descriptor_set, self.message_name

    def __setstate__(self, state: tuple[bytes, str]) -> None:
        self._descriptor_set, self.message_name = state


def _add_with_imports(file: Any, found: dict[str, bytes]) -> None:
    """Add the descriptors of a file behind those that it imports."""
    if file.name not in found:
        for imported in file.dependencies:
            _add_with_imports(imported, found)
        found[file.name] = file.serialized_pb
