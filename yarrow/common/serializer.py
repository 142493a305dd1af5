"""TypeSerializer: the interface of a user's own binary form of a type.

Called by the thread that owns the task.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from typing import Generic, TypeVar

__all__ = ["TypeSerializer"]

T = TypeVar("T")


class TypeSerializer(ABC, Generic[T]):
    """Writes values to a stream and reads them back."""

    @abstractmethod
    def serialize(self, element: T, stream: BytesIO) -> None:
        """Write one value at the stream's position."""

    @abstractmethod
    def deserialize(self, stream: BytesIO) -> T:
        """Read the one value that begins at the stream's position.

        Raises EOFError when the stream ends inside it.
        """
