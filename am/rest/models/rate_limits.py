"""Bodies about the rate limits of sources and sinks. The paths are Yarrow's.

Owner: none (declarations). Limits are those of all subtasks together, a second. null = no limit.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field

from yarrow.am.rest.models.base import HyphenModel


class RateLimitBody(HyphenModel):
    """A limit; a number that is left out is no limit."""

    model_config = ConfigDict(extra="forbid")

    rows_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    bytes_per_second: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class RateLimitsChange(HyphenModel):
    """Other limits, by the id or uid of the operator; the other operators keep theirs."""

    # FastAPI builds the schema of a body with its path.
    model_config = ConfigDict(extra="forbid", defer_build=False)

    operators: dict[str, RateLimitBody] = Field(min_length=1)


class OperatorRateBody(HyphenModel):
    """A source or sink with its limit."""

    operator_id: str
    vertex_id: str
    name: str
    uid: str | None
    type: str
    rows_per_second: float | None
    bytes_per_second: float | None
    counts_bytes: bool
    subtasks: int
    sharing_subtasks: int


class JobRateLimits(HyphenModel):
    """The rate limits of a job."""

    operators: list[OperatorRateBody]
