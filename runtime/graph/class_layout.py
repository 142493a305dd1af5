"""Pickles classes by value with their layout and name: their slots, and no attributes beside them.

cloudpickle makes a class first and sets its attributes afterwards, but `__slots__` works only while a class
is made. A class with slots would come back with a `__dict__`, and take attributes that the original refuses.
Owner: the thread that pickles; pure. It must not know which classes are pickled by value.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, NamedTuple

#: Positions of bases and namespace among cloudpickle's arguments for a new class.
_BASES, _NAMESPACE = 2, 3


def with_layout(cls: type, reduced: Any) -> Any:
    """Changes cloudpickle's reduction of a class so that the new class has the slots and qualified name of `cls`.

    Returns it unchanged if the class is not pickled by value.
    """
    if type(reduced) is not tuple or getattr(reduced[0], "__name__", "") != "_make_skeleton_class":
        return reduced
    arguments = reduced[1]
    # Records of a nested class are found by its qualified name.
    namespace = {**arguments[_NAMESPACE], "__qualname__": cls.__qualname__}
    attributes, of_slots = reduced[2]
    # A NamedTuple handles its slots itself.
    slotted = "__slots__" in vars(cls) and NamedTuple not in arguments[_BASES]
    own = _slots(cls) if slotted else ()
    if slotted:
        namespace["__slots__"] = own
    arguments = (*arguments[:_NAMESPACE], namespace, *arguments[_NAMESPACE + 1 :])
    # The new class makes its own descriptors.
    kept = {name: value for name, value in attributes.items() if name not in own}
    if slotted and not isinstance(vars(cls)["__slots__"], str | tuple | list | dict):
        kept["__slots__"] = own  # an exhausted iterator
    return (reduced[0], arguments, (kept, of_slots), *reduced[3:])


def _slots(cls: type) -> tuple[str, ...]:
    """The slots of the class itself, private names in Python's mangled form."""
    attributes = vars(cls)
    members = [
        name
        for name, value in attributes.items()
        if isinstance(value, MemberDescriptorType) and value.__objclass__ is cls
    ]
    return (*members, *(name for name in ("__dict__", "__weakref__") if name in attributes))
