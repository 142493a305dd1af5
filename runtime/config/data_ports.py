"""Whether a TaskExecutor has a port for the data of each of its slots.

Owner: none (pure). Checked with the whole configuration, and by a TaskExecutor whose number of slots its cluster chose.
"""

from __future__ import annotations

from yarrow.common.values.value_types import PortRange
from yarrow.runtime.config.options import taskmanager
from yarrow.runtime.config.settings import ReadableConfig
from yarrow.runtime.config.values.errors import ContradictoryOptions


def data_port_problem(config: ReadableConfig, slots: int) -> ContradictoryOptions | None:
    """The problem with the data ports of a TaskExecutor with so many slots; None if there is none."""
    told, bound = config.get(taskmanager.DATA_PORT), config.get(taskmanager.DATA_BIND_PORT)
    option, ports = (taskmanager.DATA_PORT, told) if bound is None else (taskmanager.DATA_BIND_PORT, bound)
    if not ports.is_any and _count(ports) < slots:
        return ContradictoryOptions(
            f"{option.key} is {ports}, {_count(ports)} port(s), but each of the {slots} slots of a TaskExecutor"
            f" ({taskmanager.NUMBER_OF_TASK_SLOTS.key}) needs one for its data. Give a range of at least {slots}"
            f" ports, as many more for each further TaskExecutor of a host, or 0 for any.",
            (option.key, taskmanager.NUMBER_OF_TASK_SLOTS.key),
        )
    if bound is not None and not told.is_any and _count(told) != _count(bound):
        return ContradictoryOptions(
            f"{taskmanager.DATA_PORT.key} ({told}) and {taskmanager.DATA_BIND_PORT.key} ({bound}) differ in"
            f" length, {_count(told)} and {_count(bound)}. Each port that a worker listens on needs one port"
            " at which other workers reach it.",
            (taskmanager.DATA_PORT.key, taskmanager.DATA_BIND_PORT.key),
        )
    return None


def _count(ports: PortRange) -> int:
    return sum(last - first + 1 for first, last in ports.intervals)
