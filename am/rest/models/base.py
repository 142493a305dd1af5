"""Base classes of all bodies: how Python field names become names in JSON.

Owner: none (declarations). Flink writes `start-time` in some bodies, `slotsNumber` in others and
`state_size` in a third kind. Each kind has its base class, and a field that follows none names itself.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

#: A number, or the text "NaN" where there is nothing to compute it from.
NumberOrNaN = float | Literal["NaN"]


def _hyphens(name: str) -> str:
    return name.replace("_", "-")


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


class RestModel(BaseModel):
    """Fields are named on the wire as in Python; `model_validate` takes them from the attributes of any object."""

    model_config = ConfigDict(populate_by_name=True, defer_build=True, from_attributes=True)


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


#: JSON whose shape is not ours to say.
RawJson = dict[str, Any]
