"""TypeInformation: the interface of every declared type.

Types are immutable values, usable from any thread; this module knows none of them. Each module of types adds its own
by `add_single` and `add_composite`, and the package `yarrow.common` loads all of these modules.
Users import from `yarrow.common.typeinfo`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, TypeAlias

#: The plain form of a type: a tag, or a list of a tag and its arguments, as msgpack and JSON can carry them.
TypeSpec: TypeAlias = str | list[Any]


class TypeInformation(ABC):
    """A declared type.

    Equal types have equal specs and equal hashes; a type never changes after it was made.
    """

    __slots__ = ("_identity",)

    #: All parts in which two types of one class may differ; set once by the constructor.
    _identity: tuple[Any, ...]

    def __init__(self) -> None:
        object.__setattr__(self, "_identity", ())

    @property
    @abstractmethod
    def python_type(self) -> type:
        """The class of the Python values of this type."""

    @property
    @abstractmethod
    def is_immutable(self) -> bool:
        """Whether no value of this type can be changed in place, so that it may be shared without a copy."""

    @abstractmethod
    def accepts(self, value: object) -> bool:
        """Whether `value` belongs to this type: class, range of integers and all nested values.

        None belongs only inside rows, tuples, lists, object arrays and map values, and to pickled values.
        """

    @abstractmethod
    def to_spec(self) -> TypeSpec:
        """Return the plain form: strings, lists and None only."""

    @staticmethod
    def from_spec(spec: TypeSpec) -> TypeInformation:
        """Return the type that `to_spec` described.

        Raises ValueError for a spec that no type of this version has.
        """
        return _from_spec(spec)

    def need_conversion(self) -> bool:
        """Whether the internal form of a value differs from the value, as it does for dates and rows."""
        return False

    def to_internal_type(self, obj: Any) -> Any:
        """Return the internal form of a value: plain integers, tuples, lists and dicts. None stays None."""
        return obj

    def from_internal_type(self, obj: Any) -> Any:
        """Return the value of an internal form; the inverse of `to_internal_type`."""
        return obj

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash((type(self).__name__, self._identity))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} cannot be changed: make another one with Types")

    def __reduce__(self) -> tuple[Any, ...]:
        return _from_spec, (self.to_spec(),)


def require_type(what: str, value: object) -> None:
    """Raise TypeError naming `what` for a value that is no declared type."""
    if not isinstance(value, TypeInformation):
        raise TypeError(f"{what} must be a TypeInformation such as Types.STRING(), not {value!r}")


#: tag -> the type of the plain form that is this tag alone.
_SINGLE: dict[str, TypeInformation] = {}
#: tag -> what makes a type of the arguments behind this tag.
_COMPOSITE: dict[str, Callable[..., TypeInformation]] = {}


def add_single(tag: str, declared: TypeInformation) -> None:
    """Make `tag` the plain form of a type. A module calls this while it loads."""
    _SINGLE[tag] = declared


def add_composite(tag: str, make: Callable[..., TypeInformation]) -> None:
    """Read plain forms of a tag and arguments by `make(*arguments)`. A module calls this while it loads."""
    _COMPOSITE[tag] = make


def _from_spec(spec: TypeSpec) -> TypeInformation:
    if isinstance(spec, str):
        if spec in _SINGLE:
            return _SINGLE[spec]
    elif isinstance(spec, list | tuple) and spec and isinstance(spec[0], str) and spec[0] in _COMPOSITE:
        try:
            return _COMPOSITE[spec[0]](*spec[1:])
        except TypeError as error:
            raise ValueError(f"malformed type spec {spec!r}: {error}") from error
    raise ValueError(f"unknown type spec {spec!r}: it was written by a newer version or is damaged")


# Pickles name this function by the module that programs import, and older versions know it there alone.
_from_spec.__module__ = "yarrow.common.typeinfo"


def declared_type(spec: TypeSpec | None) -> TypeInformation | None:
    """The declared type of a spec; None = undeclared."""
    return None if spec is None else TypeInformation.from_spec(spec)
