"""Classes by value with the layout and the name of the original: their slots, and no attributes beside them.

cloudpickle makes a class first and sets its attributes afterwards. `__slots__` works only while a class is made, so
that a class with slots would come back with a `__dict__` and take attributes that the original refuses. Owner: the
thread that pickles; pure. It must not know which classes travel by value.
"""

from __future__ import annotations

from types import MemberDescriptorType
from typing import Any, NamedTuple

#: Positions of the bases and of the namespace, among the arguments with which cloudpickle makes a class.
_BASES, _NAMESPACE = 2, 3


def with_layout(cls: type, reduced: Any) -> Any:
    """What cloudpickle reduces a class to, so that the class made of it has the slots and qualified name of `cls`.

    Comes back unchanged where the class is not made by value.
    """
    if type(reduced) is not tuple or getattr(reduced[0], "__name__", "") != "_make_skeleton_class":
        return reduced
    arguments = reduced[1]
    # Records of a class inside of another one are found by its qualified name.
    namespace = {**arguments[_NAMESPACE], "__qualname__": cls.__qualname__}
    attributes, of_slots = reduced[2]
    # A NamedTuple sees to its slots itself.
    slotted = "__slots__" in vars(cls) and NamedTuple not in arguments[_BASES]
    own = _slots(cls) if slotted else ()
    if slotted:
        namespace["__slots__"] = own
    arguments = (*arguments[:_NAMESPACE], namespace, *arguments[_NAMESPACE + 1 :])
    # The new class makes its own descriptors.
    kept = {name: value for name, value in attributes.items() if name not in own}
    if slotted and not isinstance(vars(cls)["__slots__"], str | tuple | list | dict):
        kept["__slots__"] = own  # an iterator has nothing left to give
    return (reduced[0], arguments, (kept, of_slots), *reduced[3:])


def _slots(cls: type) -> tuple[str, ...]:
    """The slots that a class itself has, private names as Python keeps them."""
    attributes = vars(cls)
    members = [
        name
        for name, value in attributes.items()
        if isinstance(value, MemberDescriptorType) and value.__objclass__ is cls
    ]
    return (*members, *(name for name in ("__dict__", "__weakref__") if name in attributes))
