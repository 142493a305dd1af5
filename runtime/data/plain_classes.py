"""Plain classes, whose instances consist of their attributes alone, and generated code over their attributes.

Copies and the wire both rest on these rules. An instance may be made empty and then filled, if that equals
what the class itself does. Whoever knows something of classes keeps it in a ClassTable. Owner: any
thread; tables are shared by all threads of the process. It must not run user code: no constructor, no
property, no __setattr__.
"""

from __future__ import annotations

import copyreg
import dataclasses
import gc
import keyword
import linecache
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

_HEAP_TYPE: Final = 1 << 9  # Py_TPFLAGS_HEAPTYPE: the class was made by a class statement
#: More attributes than this and generated code would be longer than it is fast.
_MAX_FIELDS: Final = 64
V = TypeVar("V")

#: Classes of one table. Behind the last one it begins anew.
MOST_CLASSES: Final = 4096
_new = object.__new__
_set = object.__setattr__


class ClassTable(Generic[V]):
    """Entries by exact class, of which those of built-in classes stay. A program may make classes for ever."""

    def __init__(self, built_in: Mapping[type, V], *followers: ClassTable[Any]) -> None:
        """`followers` begin anew with the table."""
        self._built_in = dict(built_in)
        self._entries = dict(built_in)
        self._followers = followers
        #: The entry of a class, or None. It stays the same function, so callers may keep it.
        self.get: Final[Callable[[type], V | None]] = self._entries.get

    def put(self, cls: type, entry: V) -> None:
        """Sets the entry of a class."""
        if len(self._entries) >= MOST_CLASSES and cls not in self._entries:
            self._begin_anew()
        self._entries[cls] = entry

    def _begin_anew(self) -> None:
        # Another thread may ask meanwhile, and entries of built-in classes are never missing.
        for cls in list(self._entries):
            if cls not in self._built_in:
                self._entries.pop(cls, None)
        for follower in self._followers:
            follower._begin_anew()


def differs(cls: Any, name: str) -> bool:
    """Whether a class has its own form of a method of object."""
    found: object = getattr(cls, name)
    return found is not getattr(object, name)


def fields_of_plain_class(cls: type) -> tuple[list[str], bool] | None:
    """Names of slots, and whether there is a __dict__; None when the class is not made of these alone."""
    customized = (
        hasattr(cls, "__deepcopy__")
        or hasattr(cls, "__del__")  # must not meet the empty instance made below
        or hasattr(cls, "__copy__")
        or (hasattr(cls, "__setstate__") and not dataclasses.is_dataclass(cls))
        or hasattr(cls, "__getnewargs_ex__")
        or hasattr(cls, "__getnewargs__")
        or differs(cls, "__reduce_ex__")
        or differs(cls, "__reduce__")
        or differs(cls, "__getattribute__")
        or (
            type(cls.__dict__.get("__getstate__")) is types.FunctionType and not dataclasses.is_dataclass(cls)
        )
    )
    if customized or not all(base is object or base.__flags__ & _HEAP_TYPE for base in cls.__mro__):
        return None
    try:
        _new(cls)
    except TypeError:  # abstract, or a base written in C
        return None
    slots: list[str] = []
    for base in cls.__mro__:
        declared = base.__dict__.get("__slots__", ())
        for name in (declared,) if isinstance(declared, str) else tuple(declared):
            if name in ("__dict__", "__weakref__"):
                continue
            if name.startswith("__") and not name.endswith("__"):
                return None  # stored under a mangled name
            slots.append(name)
    return slots, bool(cls.__dictoffset__)


def is_pickled_by_attributes(cls: type) -> bool:
    """Whether pickle makes an instance empty and fills its __dict__, with nothing of the class's own in between."""
    return (
        fields_of_plain_class(cls) == ([], True)
        and not differs(cls, "__new__")
        and not differs(cls, "__getstate__")
        and not hasattr(cls, "__setstate__")
        and cls not in copyreg.dispatch_table
        and _has_usual_dict(cls)
    )


def _has_usual_dict(cls: type) -> bool:
    found = [base.__dict__["__dict__"] for base in cls.__mro__ if "__dict__" in base.__dict__]
    return all(type(descriptor) is types.GetSetDescriptorType for descriptor in found)


class InstanceShape(NamedTuple):
    """The facts that generated code needs to read and store the attributes of instances of one class."""

    names: list[str]
    #: `instance.name = value` stores into the instance and does nothing else.
    is_storable: bool
    #: The attributes, when all of `names` are readable and `gc.get_referents` counts one more than them, are
    #: exactly `names`: then no __dict__ needs to be made to see that. Their order is not seen, so a copy has that
    #: of `names`.
    is_countable: bool


def shape_of(cls: type, names: Sequence[str]) -> InstanceShape | None:
    """The shape of instances with these attributes; None if generated code could not name them safely.

    The class must be one whose instances keep everything in their __dict__.
    """
    names = list(names)
    if not 0 < len(names) <= _MAX_FIELDS or not _has_usual_dict(cls) or not all(map(is_nameable, names)):
        return None
    on_class = [base.__dict__[name] for base in cls.__mro__ for name in names if name in base.__dict__]
    is_storable = not differs(cls, "__setattr__") and not any(
        hasattr(type(value), "__set__") or hasattr(type(value), "__delete__") for value in on_class
    )
    # A default on the class would answer for an attribute that the instance lacks.
    is_countable = not on_class and not hasattr(cls, "__getattr__") and _counts_attributes(cls, names)
    return InstanceShape(names, is_storable, is_countable)


def is_nameable(name: Any) -> bool:
    """Whether generated code may write the name of an attribute as it is."""
    return (
        type(name) is str
        and name.isascii()
        and name.isidentifier()
        and not keyword.iskeyword(name)
        and name != "__debug__"
    )


def _counts_attributes(cls: type, names: list[str]) -> bool:
    """Whether this interpreter counts attributes without a __dict__, tried on an instance of the class.

    An instance whose __dict__ was made is told apart by its count, which a single attribute would not allow.
    """
    if len(names) < 2:
        return False
    probe: Any = _new(cls)
    with_dict: Any = _new(cls)
    for name in names[1:]:
        _set(probe, name, 0)
    if len(gc.get_referents(probe)) != len(names):
        return False
    _set(probe, names[0], 0)
    with_dict.__dict__.update(dict.fromkeys(names, 0))
    return len(gc.get_referents(probe)) == len(names) + 1 != len(gc.get_referents(with_dict))


def read_lines(shape: InstanceShape, variable: str, otherwise: str) -> list[str]:
    """Lines that put the attributes of `variable` into f0, f1, ...; `otherwise` where its attributes are others.

    The lines use the names `referents` (gc.get_referents) and `names` (shape.names).
    """
    count = len(shape.names)
    fields = "".join(f"f{i}, " for i in range(count))
    from_dict = [
        f"fields = {variable}.__dict__",
        f"if [*fields] != names: {otherwise}",
        f"{fields}= fields.values()",
    ]
    if not shape.is_countable:
        return from_dict
    return [
        f"if len(referents({variable})) == {count + 1}:",
        "    try:",
        *[f"        f{i} = {variable}.{name}" for i, name in enumerate(shape.names)],
        f"    except AttributeError: {otherwise}",
        "else:",
        *[f"    {line}" for line in from_dict],
    ]


def store_lines(shape: InstanceShape, variable: str, values: Sequence[str]) -> list[str]:
    """Lines that fill the new instance `variable`."""
    if shape.is_storable:
        return [f"{variable}.{name} = {value}" for name, value in zip(shape.names, values, strict=True)]
    items = ", ".join(f"{name!r}: {value}" for name, value in zip(shape.names, values, strict=True))
    return [f"{variable}.__dict__.update({{{items}}})"]


def compile_lines(head: str, lines: Sequence[str], cls: type, scope: dict[str, Any]) -> Callable[..., Any]:
    """The function whose `def` line is `head`; entries of `scope` become its local variables."""
    bound = "".join(f", {name}={name}" for name in scope)
    source = f"def {head[:-1]}{bound}):\n" + "".join(f"    {line}\n" for line in lines)
    file_name = f"<{head.partition('(')[0]} of {cls.__module__}.{cls.__qualname__}>"
    linecache.cache[file_name] = (len(source), None, source.splitlines(True), file_name)
    namespace = dict(scope)
    exec(compile(source, file_name, "exec"), namespace)
    function: Callable[..., Any] = namespace[head.partition("(")[0]]
    return function
