"""An interpreter that is nowhere: on YARN the jobs hear of it, elsewhere the TaskExecutor ends."""

from __future__ import annotations

import sys

import pytest

from tests.unit.container.supervisor.conftest import run, within
from yarrow.container.process.task_executor_process import EarlyTemplate
from yarrow.container.protocol.errors import UnfitInterpreterError
from yarrow.runtime.common.ids import WorkerID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.values.errors import InvalidOptionValue

ENTRY = "tests.unit.container.supervisor.worker_mains:main"
NOWHERE = Settings({"python.executable": "no-such-python"})


def test_each_slot_says_what_was_tried_and_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/one:/two")

    async def body() -> None:
        launcher = await EarlyTemplate(ENTRY, jobs_hear_of_unfit=True).launcher_for(NOWHERE, 1.0)
        await launcher.start()
        with pytest.raises(UnfitInterpreterError) as raised:
            await within(launcher.launch(WorkerID("te/1"), "yarrow-slot-0", 2))
        for part in ("te/1", "python.executable: 'no-such-python'", "looked for on the PATH /one:/two"):
            assert part in str(raised.value)
        assert launcher.environment()["PATH"] == "/one:/two"
        assert launcher.processes() == ()
        own = launcher.for_interpreter(sys.executable)
        assert own is not launcher, "a job with an interpreter of its own has workers"
        await launcher.close()

    run(body())


def test_elsewhere_the_process_ends_with_the_reason() -> None:
    async def body() -> None:
        with pytest.raises(InvalidOptionValue, match="no-such-python"):
            await EarlyTemplate(ENTRY).launcher_for(NOWHERE, 1.0)

    run(body())
