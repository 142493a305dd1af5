"""The schemas by which a source began to read: stored with its splits, and kept when the job goes on from a snapshot.

Owner: the task thread. The schemas are operator state of each subtask, which all subtasks get at a restore. The client
has looked into the snapshot already, if it could; what follows here holds whether it could or not.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from yarrow.common.values.kept_schema import (
    KEPT_SCHEMA,
    KeptSchema,
    elements_of,
    schemas_for,
    schemas_of,
)
from yarrow.container.operators.base import OperatorContext
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.state import ListStateDescriptor
from yarrow.runtime.common.errors import InvalidProgramError

_log = logging.getLogger(__name__)


def with_kept_schemas(source: Source[Any, Any], name: str, context: OperatorContext) -> Source[Any, Any]:
    """Return the source as it reads from here on, and put its schemas into the state.

    Raises InvalidProgramError if its rows would not be those that the program was built for.
    """
    own = source.kept_schemas()
    if not own:
        return source
    descriptor: ListStateDescriptor[Any] = ListStateDescriptor(KEPT_SCHEMA)
    state = context.operator_state.union_list_state(descriptor)
    restored: dict[str, KeptSchema] = {}
    for place, kept in schemas_for(own, schemas_of(state.get())).items():
        if kept.content == own[place].content:
            continue
        if kept.stays(own[place]):
            restored[place] = kept
        elif context.environment.subtask == 0:
            _log.warning(
                "source '%s' has read by %s until its snapshot, and the program now names %s: it reads by that from"
                " here on",
                name,
                kept.shown if kept.shown != own[place].shown else "another schema",
                own[place].shown,
            )
    if restored:
        source = _restored(source, restored, own, name)
    state.update(elements_of({**own, **restored}))
    return source


def _restored(
    source: Source[Any, Any], kept: Mapping[str, KeptSchema], own: Mapping[str, KeptSchema], name: str
) -> Source[Any, Any]:
    restored = source.with_kept_schemas(kept)
    if _rows_of(restored) != _rows_of(source):
        began = " and ".join(schema.shown for schema in kept.values())
        built = " and ".join(own[place].shown for place in kept)
        raise InvalidProgramError(
            f"source '{name}' began with {began}, and the program was built with {built}, whose rows are of"
            " another type. Name the version of the snapshot in the program to keep it, or the new version to go on"
            " with that"
        )
    return restored


def _rows_of(source: Source[Any, Any]) -> tuple[Any, ...]:
    declared = source.produced_type()
    return None if declared is None else declared.to_spec(), source.produced_schema()
