"""Stage: one stage of a pipeline as a value; PipelineFunction: what users write.

Owner: none (frozen values). The function is opaque bytes here: only the process that runs stages loads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from yarrow.common.pipelines.stage_data import AnyData


class PipelineFunction(Protocol):
    """What a stage does, in the process of Spark's driver.

    It gets the SparkSession, and all else by name. That is a DataFrame for each StageTable that it reads, and a path
    for each StageFiles that it reads or leaves. The parameters that it takes follow. Types of Spark are not named here,
    since clients do without it.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any | Mapping[str, Any] | None:
        """Returns the DataFrame of its only table, a mapping from names to DataFrames for several, None for none."""
        ...


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A stage as it travels with the job."""

    name: str
    #: The pickled PipelineFunction.
    function: bytes
    #: What the function gets: outputs of other stages, and what was there before.
    inputs: tuple[AnyData, ...] = ()
    outputs: tuple[AnyData, ...] = ()
    #: All parameters of the stage: paths may name each of them.
    parameters: dict[str, Any] = msgspec.field(default_factory=dict)
    #: The parameters that the function gets.
    arguments: tuple[str, ...] = ()
    #: How often the stage begins again after its function has failed.
    retries: int = 0
