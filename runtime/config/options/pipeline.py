"""Options of one job's graph: name, parallelism, chaining and object reuse.

Owner: any thread; declarations only. Nothing here reads a value; defaults are Flink's where the key is
Flink's, and the text says so where they are not.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.execution_modes import TimeCharacteristic
from yarrow.common.values.value_types import (
    BOOLEAN,
    DURATION,
    MAP,
    POSITIVE,
    STRING,
    ValueType,
    enum_of,
    integer,
)
from yarrow.runtime.config.values.option import option, optional

#: The largest number of key groups that a job can have.
MAX_MAX_PARALLELISM: Final = 32768


def _max_parallelism() -> ValueType[int]:
    bounded = integer(-1, MAX_MAX_PARALLELISM, "128")

    def parse(text: str) -> int:
        number = bounded.parse(text)
        if number == 0:
            raise ValueError("it is 0")
        return number

    expected = f"a whole number from 1 to {MAX_MAX_PARALLELISM}, or -1 to derive it from the parallelism"
    return ValueType("Integer", expected, "128", parse, str)


DEFAULT_PARALLELISM: Final = option(
    "parallelism.default",
    POSITIVE,
    "1",
    "Parallelism of a job that sets none. Without this key an embedded cluster takes the number of cores.",
)
NAME: Final = optional("pipeline.name", STRING, "The name of the job.", unset="the name given to `execute`")
MAX_PARALLELISM: Final = option(
    "pipeline.max-parallelism",
    _max_parallelism(),
    "-1",
    "The number of key groups: the most to which a job can be rescaled. -1: one and"
    " a half times the parallelism,"
    " rounded up to a power of two, at least 128 and at most 32768.",
)
OBJECT_REUSE: Final = option(
    "pipeline.object-reuse",
    BOOLEAN,
    "false",
    "Whether operators hand on changeable values without a copy. Functions must then not change or keep "
    "them.",
)
INLINE_FUNCTIONS: Final = option(
    "pipeline.inline-functions",
    BOOLEAN,
    "true",
    "Whether the loop of a task computes small functions instead of calling them. Their results and errors are the "
    "same. A task calls all functions once a debugger, a profiler or coverage watches its thread.",
)
OPERATOR_CHAINING: Final = option(
    "pipeline.operator-chaining.enabled",
    BOOLEAN,
    "true",
    "Whether operators are chained into one task where they can be.",
    deprecated_keys=("pipeline.operator-chaining",),
)
CHAIN_WITH_DIFFERENT_MAX_PARALLELISM: Final = option(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    BOOLEAN,
    "true",
    "Whether operators whose max parallelism differs may be chained.",
)
AUTO_WATERMARK_INTERVAL: Final = option(
    "pipeline.auto-watermark-interval",
    DURATION,
    "200 ms",
    "How often watermarks are made from event times; 0: never.",
)
WATERMARK_MAX_JUMP: Final = optional(
    "pipeline.watermark.max-jump",
    DURATION,
    "How far a single record may push a watermark. A timestamp too far ahead of the highest seen advances "
    "the watermark by this much only, and numWatermarkJumpsBounded counts it. A clock that runs wrong "
    "then does not make all other records late. Generators get the bounded timestamp. A generator that "
    "reads times out of its records itself is bounded in on_event only. Not in Flink.",
    unset="no bound",
)
ALLOW_UNALIGNED_SOURCE_SPLITS: Final = option(
    "pipeline.watermark-alignment.allow-unaligned-source-splits",
    BOOLEAN,
    "false",
    "Whether a source with aligned watermarks may have several splits in a reader that cannot pause single splits. "
    "Such a reader waits as a whole, by the slowest of its splits.",
)
TIME_CHARACTERISTIC: Final = option(
    "pipeline.time-characteristic",
    enum_of(
        TimeCharacteristic, {member: member.name.title().replace("_", "") for member in TimeCharacteristic}
    ),
    "EventTime",
    "Where timestamps come from. With IngestionTime sources stamp records as they read them, in place of "
    "timestamps of their own. EventTime and ProcessingTime leave timestamps to the program.",
)
AUTO_GENERATE_UIDS: Final = option(
    "pipeline.auto-generate-uids",
    BOOLEAN,
    "true",
    "Whether an operator without uid gets an id from its place in the graph; if not, such a job is refused.",
)
GLOBAL_JOB_PARAMETERS: Final = optional(
    "pipeline.global-job-parameters",
    MAP,
    "Parameters that every function of the job can read.",
    unset="no parameters",
)
