"""AskedSource: a source that asked a registry for its schemas, until the program gives the id of its operator.

Owner: the thread that builds the program. Must not change the transformation: the environment does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from yarrow.common.typeinfo import TypeInformation
from yarrow.common.values.kept_schema import KeptSchema
from yarrow.common.watermark_strategy import WatermarkStrategy
from yarrow.datastream.connectors.base import Source
from yarrow.datastream.program.kept_schemas import (
    StoredSchemas,
    read_schemas,
    schemas_by_name,
    schemas_of_operator,
    tell_kept,
    with_schemas,
)
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.common.ids import OperatorID
from yarrow.runtime.config.options import execution
from yarrow.runtime.graph.translation.operator_ids import operator_id_of_uid

if TYPE_CHECKING:
    from yarrow.runtime.config.settings import Settings
    from yarrow.runtime.graph.transformations import SpecTransformation


class AskedSource:
    """A source as the program has built it, and what else its transformation is made of."""

    def __init__(
        self,
        source: Source[Any, Any],
        name: str,
        output_type: TypeInformation | None,
        strategy: WatermarkStrategy | None,
    ) -> None:
        """`output_type`: the declaration of the program."""
        self._source = source
        self._name = name
        self._own = source.kept_schemas()
        self._kept: Mapping[str, KeptSchema] = {}
        #: The snapshot that was read last, and its schemas.
        self._read: tuple[str, Sequence[StoredSchemas]] | None = None
        self.output_type = output_type
        self.strategy = strategy

    def by_name(self, settings: Settings) -> Source[Any, Any]:
        """Return the source as it reads unless the program gives an id: name and subjects tell."""
        self._kept = schemas_by_name(self._own, self._name, self._stored(settings))
        tell_kept(self._name, self._own, self._kept)
        return with_schemas(self._source, self._kept)

    def by_id(self, operator: SpecTransformation, settings: Settings) -> Source[Any, Any] | None:
        """Return the source as it reads under the id of its operator; None = as it reads already."""
        kept = schemas_of_operator(self._own, _id_of(operator), self._stored(settings))
        if kept == self._kept:
            return None
        self._kept = kept
        tell_kept(self._name, self._own, kept)
        return with_schemas(self._source, kept)

    def _stored(self, settings: Settings) -> Sequence[StoredSchemas]:
        """The schemas of the snapshot from which the job will begin, which is read once."""
        path = settings.get(execution.SAVEPOINT_PATH)
        if path is None:
            return ()
        if self._read is None or self._read[0] != path:
            self._read = path, read_schemas(path, self._name)
        return self._read[1]

    def check_form(self, operator: SpecTransformation, form: Mapping[str, Any]) -> None:
        """Raise InvalidProgramError if what reads the operator was made for rows of another type than in `form`."""
        same = all(form.get(part) == getattr(operator, part) for part in ("output_type", "output_schema"))
        if operator.is_read and not same:
            shown = " and ".join({**self._own, **self._kept}[place].shown for place in self._own)
            raise InvalidProgramError(
                f"source '{self._name}' reads by {shown} under this id, and operators behind it were made for rows of"
                " another type; call uid() directly behind from_source"
            )


def _id_of(operator: SpecTransformation) -> OperatorID:
    if operator.uid_hash is not None:
        return OperatorID(operator.uid_hash)
    assert operator.uid is not None
    return operator_id_of_uid(operator.uid)
