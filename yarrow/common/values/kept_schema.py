"""KeptSchema: the schema by which a job began to read, as its snapshots have it.

Layer 1 (vocabulary); any thread; plain values. A program may ask a registry for a schema while it is built, and get
another one the next time. A job that goes on from a snapshot stays with the schema of its first start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

#: Name of the operator state that has the schemas of a source, each with its place; part of the format of savepoints.
KEPT_SCHEMA = "source-kept-schema"
#: The place of the only schema of a source. Older snapshots tell no place: theirs is the only schema that was kept.
ONLY = ""


class KeptSchema(NamedTuple):
    """A schema, and what the program has asked for."""

    #: The subject whose latest version the program has asked for; empty = the program itself says which schema it is.
    subject: str
    #: For log lines and errors, such as "version 2 of the subject 'orders-value'".
    shown: str
    #: All that its reader needs.
    content: str

    def stays(self, own: KeptSchema) -> bool:
        """Whether a job goes on with this schema of a snapshot, although its program was built with another, `own`.

        A program that names another subject, version or schema has been changed, and its schema holds.
        """
        return bool(self.subject) and self.subject == own.subject


def elements_of(schemas: Mapping[str, KeptSchema]) -> list[tuple[str, ...]]:
    """Return the elements of the operator state, one a place."""
    return [(*schema, place) if place else tuple(schema) for place, schema in schemas.items()]


def schemas_of(elements: Iterable[Sequence[str]]) -> dict[str, KeptSchema]:
    """Return the schemas of such elements by their place. Subtasks store the same ones, so the first one counts."""
    found: dict[str, KeptSchema] = {}
    for subject, shown, content, *place in elements:
        found.setdefault(place[0] if place else ONLY, KeptSchema(subject, shown, content))
    return found


def schemas_for(own: Mapping[str, KeptSchema], stored: Mapping[str, KeptSchema]) -> dict[str, KeptSchema]:
    """Return the schemas of a snapshot for the places of a source that the program has built with `own`.

    A schema without a place belongs to the only place that follows its subject. A place that the snapshot lacks is left
    out.
    """
    found = {place: stored[place] for place in own if place in stored}
    alone = stored.get(ONLY)
    if alone is not None and ONLY not in own:
        fitting = [place for place, schema in own.items() if place not in found and alone.stays(schema)]
        if len(fitting) == 1:
            found[fitting[0]] = alone
    return found
