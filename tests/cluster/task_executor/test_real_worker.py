"""The real worker starts in each way, and the template stays as light as a fork needs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.task_executor.conftest import RESOURCE, cluster
from tests.unit.container.supervisor.conftest import eventually, run
from yarrow.container.launch.process_start import DEFAULT_ENTRY
from yarrow.container.supervisor.slot_table import TaskExecutorSlotState

pytestmark = pytest.mark.cluster


def loaded_libraries(pid: int) -> str:
    return Path(f"/proc/{pid}/maps").read_text()


def test_worker_becomes_ready_and_ends_with_its_slot(start_mode: str, tmp_path: Path) -> None:
    async def body() -> None:
        async with cluster(start_mode, tmp_path, entry=DEFAULT_ENTRY) as c:
            slot = await c.active_slot()
            address = c.job_master.offers[slot].worker
            assert address.resource_id == RESOURCE
            assert address.host_key == c.settings.workers.host_key
            if start_mode != "in-process":
                names = [name for name, _ in await c.gateway.request_thread_dump()]
                assert any(name.startswith("slot 0: ") for name in names)
            for name, pid in c.executor.workers.processes():
                maps = loaded_libraries(pid)
                if name != "supervisor":
                    # In one process with the test, which uses pyarrow itself.
                    shared = () if start_mode == "in-process" else ("pyarrow",)
                    for library in ("polars", "pandas", "grpc", *shared):
                        assert f"/{library}/" not in maps, f"{name} has loaded {library}"
            await c.gateway.free_slot(slot, "done")
            await eventually(lambda: c.state_of(0) is TaskExecutorSlotState.FREE, "the worker has ended")
            assert not c.job_master.failed_slots

    run(body())
