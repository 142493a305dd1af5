"""ProgramStream, the base of all streams: the program, the transformation, and operators put behind it.

Owner: the thread that builds the program. It has no operator of its own: the derived classes group operators by
purpose. They know the streams that their methods return by a type parameter alone.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Generic, NoReturn, Protocol, Self, TypeVar

from yarrow.common.typeinfo import TypeInformation, Types
from yarrow.datastream.connectors.base import Sink
from yarrow.datastream.connectors.dead_letters import DEAD_LETTERS
from yarrow.datastream.data_stream_sink import DataStreamSink
from yarrow.datastream.operator_settings import OperatorSettings
from yarrow.datastream.output_tag import OutputTag
from yarrow.datastream.program.graph_builder import GraphBuilder, declared
from yarrow.runtime.graph.operator_spec import PartitionerSpec, StreamKind
from yarrow.runtime.graph.transformations import SpecTransformation, Transformation

if TYPE_CHECKING:
    from yarrow.common.execution_config import ExecutionConfig
    from yarrow.common.job_client import JobClient

#: The streams that the methods of a stream return.
S = TypeVar("S", bound="ProgramStream[Any]")
_Sink = TypeVar("_Sink", bound=Sink[Any])


class StreamProgram(Protocol):
    """The part of an execution environment that streams build on."""

    @property
    def graph_builder(self) -> GraphBuilder: ...

    def get_config(self) -> ExecutionConfig: ...

    def operator_identified(self, operator: SpecTransformation) -> None: ...

    def in_default_file_system(self, connector: _Sink) -> _Sink: ...

    def new_collect_id(self) -> str: ...

    def execute_async(self, job_name: str) -> JobClient: ...


class ProgramStream(OperatorSettings, ABC, Generic[S]):
    """A stream of a program that is being built."""

    def __init__(self, environment: StreamProgram, transformation: Transformation) -> None:
        super().__init__(transformation)
        self._program = environment
        self._builder = environment.graph_builder

    def get_execution_config(self) -> ExecutionConfig:
        """Return the settings of the program's execution."""
        return self._program.get_config()

    def uid(self, uid: str) -> Self:
        """Set the id by which a savepoint finds the operator; unique in the program.

        A source that follows a subject of a registry then reads by the schema that the savepoint has of this id. Raises
        InvalidProgramError if operators behind the source were made for rows of another type.
        """
        super().uid(uid)
        self._program.operator_identified(self.operator("uid"))
        return self

    def set_uid_hash(self, uid_hash: str) -> Self:
        """Set the operator id itself, 32 hexadecimal digits, as a savepoint shows it. Raises as `uid`."""
        super().set_uid_hash(uid_hash)
        self._program.operator_identified(self.operator("set_uid_hash"))
        return self

    def get_type(self) -> TypeInformation:
        """Return the declared type; PICKLED_BYTE_ARRAY when none was declared."""
        return self.transformation.output_type or Types.PICKLED_BYTE_ARRAY()

    @property
    def is_columnar(self) -> bool:
        """Whether the stream carries record batches instead of rows."""
        return self.transformation.output_kind is StreamKind.COLUMNAR

    def get_side_output(self, output_tag: OutputTag) -> S:
        """Return the records that the operator before emits under a tag."""
        if not isinstance(output_tag, OutputTag):
            raise TypeError(f"get_side_output takes an OutputTag, not {output_tag!r}")
        made = self._builder.side_output(
            self.operator("get_side_output"), output_tag.tag_id, declared(output_tag.type_info)
        )
        return self._stream(made)

    @abstractmethod
    def _stream(self, transformation: Transformation) -> S:
        """The stream that a transformation of the same program puts out."""

    def _one_input(
        self, name: str, spec: Any, output_type: TypeInformation | None, blocking: bool = False
    ) -> S:
        read = self._builder.as_rows(self.transformation)
        made = self._builder.one_input(read, name, spec, output_type=output_type, blocking=blocking)
        return self._stream(made)

    def _sink(self, name: str, spec: Any, read: Transformation, blocking: bool) -> DataStreamSink:
        made = self._builder.sink(read, name, spec, blocking=blocking)
        return DataStreamSink(made, self._letters_of)

    def _letters_of(self, operator: SpecTransformation) -> S:
        letters = self._builder.side_output(operator, DEAD_LETTERS, None)
        before = operator.prepared_by
        if before is None:
            return self._stream(letters)
        return self._stream(
            self._builder.union([letters, self._builder.side_output(before, DEAD_LETTERS, None)])
        )

    def _partition(self, spec: PartitionerSpec, read: Transformation | None = None) -> S:
        return self._stream(self._builder.partition(read or self.transformation, spec))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} is part of the program that is being built and cannot be used inside a"
            " function"
        )
