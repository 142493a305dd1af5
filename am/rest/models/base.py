"""Base classes of all bodies: how Python field names become names in JSON.

Owner: none (declarations). Flink writes `start-time` in some bodies, `slotsNumber` in others and
`state_size` in a third kind. Each kind has its base class, and a field that follows none names itself.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict

#: A number, or the text "NaN" where there is nothing to compute it from.
NumberOrNaN = float | Literal["NaN"]
#: A text; null where the record has an empty one.
TextOrNone = Annotated[str | None, BeforeValidator(lambda text: text or None)]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


class RestModel(BaseModel):
    """Fields are named on the wire as in Python; `model_validate` takes them from the attributes of any object."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True, from_attributes=True)

    @classmethod
    def of(cls, record: object, **computed: Any) -> Self:
        """The body of a record: the computed fields, and the others from its attributes.

        Both are named as the fields, or as their validation aliases. Raises ValidationError if one is missing.
        """
        return cls.model_validate(_Computed(record, computed))


class _Computed:
    """A record together with values that it does not have."""

    def __init__(self, record: object, computed: dict[str, Any]) -> None:
        vars(self).update(computed, _record=record)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._record, name)


class HyphenModel(RestModel):
    """Fields are named `start-time`."""

    model_config = ConfigDict(alias_generator=_hyphens)


class CamelModel(RestModel):
    """Fields are named `startTime`."""

    model_config = ConfigDict(alias_generator=_camel)


class EmptyBody(RestModel):
    """An answer without content: the server has done the request."""


class ErrorBody(RestModel):
    """The reasons of a refusal."""

    errors: list[str]


class TriggerBody(HyphenModel):
    """The server has begun an operation; the operation's path with this id tells its state."""

    request_id: str


class QueueStatus(RestModel):
    """The state of an operation."""

    id: Literal["IN_PROGRESS", "COMPLETED"]


#: JSON whose shape is not ours to say.
RawJson = dict[str, Any]
