"""SlotSharingGroup: the operators that may share a slot, and the resources of such a slot.

Immutable values made while the graph is built. Matching them with slots is the scheduler's part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from yarrow.common.values.quantities import MemorySize

__all__ = ["MemorySize", "SlotSharingGroup"]


@dataclass(frozen=True)
class SlotSharingGroup:
    """A named group; made by `SlotSharingGroup.builder(name)`. A resource that is None is not specified."""

    name: str
    cpu_cores: float | None = None
    task_heap_memory: MemorySize | None = None
    task_off_heap_memory: MemorySize | None = None
    managed_memory: MemorySize | None = None
    external_resources: Mapping[str, float] = field(default_factory=dict, hash=False)

    class Builder:
        """Collects the resources of a group's slots."""

        def __init__(self, name: str) -> None:
            self._name = name
            self._cpu_cores: float | None = None
            self._task_heap_memory: MemorySize | None = None
            self._task_off_heap_memory: MemorySize | None = None
            self._managed_memory: MemorySize | None = None
            self._external_resources: dict[str, float] = {}

        def set_cpu_cores(self, cpu_cores: float) -> SlotSharingGroup.Builder:
            """Set the cores of a slot. Raises ValueError unless positive."""
            if cpu_cores <= 0:
                raise ValueError(
                    f"cpu_cores of slot sharing group {self._name!r} must be positive, not {cpu_cores}"
                )
            self._cpu_cores = cpu_cores
            return self

        def set_task_heap_memory(self, task_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory for Python objects of a slot. Raises ValueError unless positive."""
            if task_heap_memory.get_bytes() <= 0:
                raise ValueError(
                    f"task_heap_memory of slot sharing group {self._name!r} must be positive, not {task_heap_memory}"
                )
            self._task_heap_memory = task_heap_memory
            return self

        def set_task_heap_memory_mb(self, task_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory for Python objects of a slot, in mebibytes."""
            return self.set_task_heap_memory(MemorySize.of_mebi_bytes(task_heap_memory_mb))

        def set_task_off_heap_memory(self, task_off_heap_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory for Arrow buffers of a slot."""
            self._task_off_heap_memory = task_off_heap_memory
            return self

        def set_task_off_heap_memory_mb(self, task_off_heap_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory for Arrow buffers of a slot, in mebibytes."""
            return self.set_task_off_heap_memory(MemorySize.of_mebi_bytes(task_off_heap_memory_mb))

        def set_managed_memory(self, managed_memory: MemorySize) -> SlotSharingGroup.Builder:
            """Set the memory for the state backend of a slot."""
            self._managed_memory = managed_memory
            return self

        def set_managed_memory_mb(self, managed_memory_mb: int) -> SlotSharingGroup.Builder:
            """Set the memory for the state backend of a slot, in mebibytes."""
            return self.set_managed_memory(MemorySize.of_mebi_bytes(managed_memory_mb))

        def set_external_resource(self, name: str, value: float) -> SlotSharingGroup.Builder:
            """Set how much a slot needs of a resource such as `gpu`. Raises ValueError unless positive."""
            if value <= 0:
                raise ValueError(f"external resource {name!r} must be positive, not {value}")
            self._external_resources[name] = value
            return self

        def build(self) -> SlotSharingGroup:
            """Return the group.

            Raises ValueError when other resources are given without both cores and task heap memory.
            """
            others = self._task_off_heap_memory, self._managed_memory, self._external_resources or None
            given = [self._cpu_cores, self._task_heap_memory, *others]
            if any(value is not None for value in given) and None in (
                self._cpu_cores,
                self._task_heap_memory,
            ):
                raise ValueError(
                    f"slot sharing group {self._name!r} specifies resources: "
                    "set both cpu_cores and task_heap_memory, or nothing"
                )
            return SlotSharingGroup(
                self._name,
                self._cpu_cores,
                self._task_heap_memory,
                self._task_off_heap_memory,
                self._managed_memory,
                dict(self._external_resources),
            )

    @staticmethod
    def builder(name: str) -> Builder:
        """Begin a group of this name."""
        return SlotSharingGroup.Builder(name)

    def get_name(self) -> str:
        """Return the name."""
        return self.name

    def get_cpu_cores(self) -> float | None:
        """Return the cores of a slot."""
        return self.cpu_cores

    def get_task_heap_memory(self) -> MemorySize | None:
        """Return the memory for Python objects of a slot."""
        return self.task_heap_memory

    def get_task_off_heap_memory(self) -> MemorySize | None:
        """Return the memory for Arrow buffers of a slot."""
        return self.task_off_heap_memory

    def get_managed_memory(self) -> MemorySize | None:
        """Return the memory for the state backend of a slot."""
        return self.managed_memory

    def get_external_resources(self) -> dict[str, float]:
        """Return how much a slot needs of other resources, by name."""
        return dict(self.external_resources)
