"""Rules for two JSON Schemas: why the reader's cannot read the writer's, and which fields only the writer has.

Owner: any thread; pure. JSON Schema has no rules of its own for this, so they are those of Avro, carried over. A whole
number may be read as a number. A field that the reader requires must be known to the writer. Of several kinds one must
be readable. What depends on a value is left to the reader of messages.
"""

from __future__ import annotations

from collections.abc import Iterator

from yarrow.datastream.formats.registry.compared_pairs import ComparedPairs
from yarrow.datastream.formats.registry.json_schema.shapes import JsonShape, readable_kinds

_NULL = frozenset({"null"})


def fault_of(written: JsonShape, declared: JsonShape) -> str | None:
    """Return why no message of a writer's schema can be read, with the path of the field; None = it can."""
    return _Faults().between(written, declared, "")


def new_fields(written: JsonShape, declared: JsonShape) -> list[str]:
    """Return the paths of the fields that only the writer's schema names."""
    return list(_new_fields(written, declared, "", set()))


class _Faults:
    """One comparison of two shapes, which may contain themselves."""

    def __init__(self) -> None:
        self._pairs = ComparedPairs()

    def between(self, written: JsonShape, declared: JsonShape, path: str) -> str | None:
        """The first fault at a path or below."""
        pair = id(written), id(declared)
        return self._pairs.fault(pair, lambda: self._compared(written, declared, path))

    def _compared(self, written: JsonShape, declared: JsonShape, path: str) -> str | None:
        readable = readable_kinds(written.kinds, declared.kinds)
        # A field that may be null holds other values as a rule, so these must be readable.
        if not (readable - _NULL if written.kinds - _NULL else readable):
            return _fault(path, f"the writer's {written.shown()} cannot be read as {declared.shown()}")
        if "object" in readable and (fault := self._objects(written, declared, path)) is not None:
            return fault if readable - _NULL == {"object"} else None
        if readable - _NULL == {"array"} and written.items is not None and declared.items is not None:
            return self.between(written.items, declared.items, path)
        return None

    def _objects(self, written: JsonShape, declared: JsonShape, path: str) -> str | None:
        for name, part in declared.properties.items():
            inner = f"{path}.{name}" if path else name
            known = written.properties.get(name, written.rest)
            if known is not None:
                fault = self.between(known, part, inner)
                if fault is not None:
                    return fault
        # A schema may require a field that its properties do not name.
        for name in sorted(declared.required - written.required):
            if name not in written.properties and written.rest is None and not written.is_open:
                inner = f"{path}.{name}" if path else name
                return _fault(inner, "the writer's schema lacks it, and the reader's requires it")
        if declared.rest is None:
            return None
        others = {name: part for name, part in written.properties.items() if name not in declared.properties}
        for name, part in others.items():
            fault = self.between(part, declared.rest, f"{path}.{name}" if path else name)
            if fault is not None:
                return fault
        return None if written.rest is None else self.between(written.rest, declared.rest, path)


def _new_fields(
    written: JsonShape, declared: JsonShape, path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    pair = id(written), id(declared)
    if pair in seen:
        return
    seen.add(pair)
    # A reader whose objects have no names takes any field.
    if declared.properties:
        for name, part in written.properties.items():
            inner = f"{path}.{name}" if path else name
            known = declared.properties.get(name, declared.rest)
            if known is None and not declared.is_open:
                yield inner
            elif known is not None:
                yield from _new_fields(part, known, inner, seen)
    if written.items is not None and declared.items is not None:
        yield from _new_fields(written.items, declared.items, path, seen)


def _fault(path: str, problem: str) -> str:
    return f"field {path!r}: {problem}" if path else problem
