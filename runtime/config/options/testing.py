"""Options for tests of the engine itself: faults at named places.

Owner: any thread; declarations only. No program that matters sets one of these.
"""

from __future__ import annotations

from typing import Final

from yarrow.common.values.value_types import STRING
from yarrow.runtime.config.values.option import option, optional

FAULT_PLAN: Final = optional(
    "testing.fault-plan",
    STRING,
    "For tests only: `module:attribute` of a function that the workers of a job call with "
    "`testing.fault-plan.arguments`. Its result decides what happens at fault points.",
    unset="nothing happens at fault points",
)
FAULT_PLAN_ARGUMENTS: Final = option(
    "testing.fault-plan.arguments",
    STRING,
    "{}",
    "For tests only: the argument for the function of `testing.fault-plan`, as a rule JSON.",
)
