"""OutputTag: the name and type of a side output. An immutable value that travels with the job."""

from __future__ import annotations

from collections.abc import Sequence

from yarrow.common.typeinfo import RowTypeInfo, TypeInformation, Types

__all__ = ["OutputTag"]


class OutputTag:
    """Names a side output of an operator; tags with the same id name the same output.

    A process function sends to it by `yield tag, value`. Without a type, values are pickled. A list of types
    declares Rows.

    Raises ValueError for an empty id and TypeError for a value that is no type.
    """

    __slots__ = ("tag_id", "type_info")

    tag_id: str
    type_info: TypeInformation

    def __init__(
        self, tag_id: str, type_info: TypeInformation | Sequence[TypeInformation] | None = None
    ) -> None:
        if not isinstance(tag_id, str) or not tag_id:
            raise ValueError(f"the id of an OutputTag must be a non-empty string, not {tag_id!r}")
        if type_info is None:
            type_info = Types.PICKLED_BYTE_ARRAY()
        elif isinstance(type_info, list | tuple):
            type_info = RowTypeInfo(type_info)
        elif not isinstance(type_info, TypeInformation):
            raise TypeError(f"the type of OutputTag {tag_id!r} must be a TypeInformation, not {type_info!r}")
        object.__setattr__(self, "tag_id", tag_id)
        object.__setattr__(self, "type_info", type_info)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError("an OutputTag cannot be changed: make another one")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        return hash(self.tag_id)

    def __reduce__(self) -> tuple[type[OutputTag], tuple[str, TypeInformation]]:
        return OutputTag, (self.tag_id, self.type_info)

    def __repr__(self) -> str:
        return f"OutputTag({self.tag_id!r}, {self.type_info})"
