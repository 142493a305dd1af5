"""Avro's rules for two schemas: why the reader's cannot read the writer's, and which fields only the writer has.

Owner: any thread; pure. Source of the rules: the specification of Avro 1.12, "Schema Resolution". What depends on a
value, such as the branch of a union that a record has, is left to the reader of records. Must not read messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from yarrow.datastream.formats.avro_resolution import differing_meaning
from yarrow.datastream.formats.avro_schema import AvroType
from yarrow.datastream.formats.registry.compared_pairs import ComparedPairs

#: Stored type of a writer -> the types as which it can be read.
_PROMOTED: Final = {
    "int": {"int", "long", "float", "double"},
    "long": {"long", "float", "double"},
    "float": {"float", "double"},
    "string": {"string", "bytes"},
    "bytes": {"string", "bytes"},
}


def fault_of(written: AvroType, declared: AvroType) -> str | None:
    """Return why no record of a writer's schema can be read, with the path of the field; None = it can."""
    found = _Faults().between(written, declared, "")
    if found is not None:
        return found
    differing = differing_meaning(written, declared)
    if differing is None:
        return None
    return (
        f"field {differing.path!r} is of type {differing.written} in the writer's schema and of {differing.declared} in"
        " the program's schema; declare the type of the writer"
    )


def new_fields(written: AvroType, declared: AvroType) -> list[str]:
    """Return the paths of the fields that only the writer's schema has."""
    return list(_new_fields(written, declared, "", set()))


class _Faults:
    """One comparison of two schemas, which may contain themselves."""

    def __init__(self) -> None:
        self._pairs = ComparedPairs()

    def between(self, written: AvroType, declared: AvroType, path: str) -> str | None:
        """The first fault at a path or below."""
        pair = id(written), id(declared)
        return self._pairs.fault(pair, lambda: self._compared(written, declared, path))

    def _compared(self, written: AvroType, declared: AvroType, path: str) -> str | None:
        if written.kind == "union":
            faults = [self.between(part, declared, path) for part in written.parts]
            # A record may have a branch that can be read.
            return faults[0] if faults and all(fault is not None for fault in faults) else None
        if declared.kind == "union":
            if any(self.between(written, part, path) is None for part in declared.parts):
                return None
            kinds = ", ".join(_shown(part) for part in declared.parts)
            return _fault(path, f"the writer's {_shown(written)} is none of the reader's types {kinds}")
        if written.kind == declared.kind == "record":
            return self._records(written, declared, path)
        if written.kind == declared.kind and written.kind in ("array", "map"):
            return self.between(written.parts[0], declared.parts[0], path)
        return _plain_fault(written, declared, path)

    def _records(self, written: AvroType, declared: AvroType, path: str) -> str | None:
        if not _same_name(written, declared):
            return _names_fault(written, declared, path)
        found = dict(written.fields)
        for name, part in declared.fields:
            inner = f"{path}.{name}" if path else name
            known = next((other for other in (name, *declared.aliases[name]) if other in found), None)
            if known is None:
                if name not in declared.defaults:
                    return _fault(
                        inner, "the writer's schema lacks it, and the reader's has no default for it"
                    )
                continue
            fault = self.between(found[known], part, inner)
            if fault is not None:
                return fault
        return None


def _plain_fault(written: AvroType, declared: AvroType, path: str) -> str | None:
    stored, wanted = written.stored or written.kind, declared.stored or declared.kind
    if stored == wanted and written.name and not _same_name(written, declared):
        return _names_fault(written, declared, path)
    if stored == wanted == "fixed" and written.size != declared.size:
        return _fault(path, f"the writer's fixed has {written.size} bytes, the reader's {declared.size}")
    if wanted in _PROMOTED.get(stored, {stored}):
        return None
    return _fault(path, f"the writer's {_shown(written)} cannot be read as {_shown(declared)}")


def _new_fields(
    written: AvroType, declared: AvroType, path: str, seen: set[tuple[int, int]]
) -> Iterator[str]:
    pair = id(written), id(declared)
    if pair in seen:
        return
    seen.add(pair)
    if "union" in (written.kind, declared.kind):
        for part in written.parts if written.kind == "union" else [written]:
            for branch in declared.parts if declared.kind == "union" else [declared]:
                if part.kind == branch.kind and _same_name(part, branch):
                    yield from _new_fields(part, branch, path, seen)
    elif written.kind == declared.kind == "record":
        known = {other: part for name, part in declared.fields for other in (*declared.aliases[name], name)}
        for name, part in written.fields:
            inner = f"{path}.{name}" if path else name
            if name in known:
                yield from _new_fields(part, known[name], inner, seen)
            else:
                yield inner
    elif written.kind == declared.kind and written.kind in ("array", "map"):
        yield from _new_fields(written.parts[0], declared.parts[0], path, seen)


def _same_name(written: AvroType, declared: AvroType) -> bool:
    """Whether two named types have the same name, namespaces apart; or the reader's has the other as an alias."""
    own = written.name.rpartition(".")[2]
    return own == declared.name.rpartition(".")[2] or own in declared.name_aliases


def _names_fault(written: AvroType, declared: AvroType, path: str) -> str:
    return _fault(
        path, f"the writer's {written.kind} is named {written.name}, and the reader's {declared.name}"
    )


def _fault(path: str, problem: str) -> str:
    return f"field {path!r}: {problem}" if path else problem


def _shown(declared: AvroType) -> str:
    return declared.name or declared.kind
