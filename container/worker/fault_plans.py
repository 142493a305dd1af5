"""FaultPlans: for tests of the engine only, a job's configuration decides what happens at fault points of its workers.

Owner: the task thread that deploys. Must not know what a plan does; without the option nothing is imported.
"""

from __future__ import annotations

import importlib

from yarrow.runtime.common import fault_points
from yarrow.runtime.common.errors import InvalidProgramError
from yarrow.runtime.config.options import testing
from yarrow.runtime.config.settings import Settings

#: The plan installed in this process: (plan, arguments).
_installed: tuple[str, str] | None = None


def install_fault_plan(settings: Settings) -> None:
    """Installs the plan that `testing.fault-plan` names, once a process; another plan replaces it.

    Raises InvalidProgramError if there is no such function.
    """
    global _installed
    named = settings.get(testing.FAULT_PLAN)
    if named is None:
        return
    wanted = (named, settings.get(testing.FAULT_PLAN_ARGUMENTS))
    if wanted == _installed:
        return
    module, _, attribute = named.partition(":")
    try:
        factory = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise InvalidProgramError(
            f"testing.fault-plan: {named} cannot be loaded: {error}; give module:attribute of a function"
        ) from error
    fault_points.install(factory(wanted[1]))
    _installed = wanted
