"""A process that forks its template first, as a TaskExecutor does, and prints what two workers are, as JSON.

One worker comes from the forked template, the other from an executed one.
"""

from __future__ import annotations

import json
import os
import sys

from yarrow.container.launch.forked_template import fork_template


async def reports(folder: str) -> list[dict[str, str]]:
    """The facts of both workers; each launcher has ended its template by then."""
    from pathlib import Path

    import psutil

    from tests.unit.container.supervisor.conftest import OpenLauncher, launch_settings
    from tests.unit.container.supervisor.test_worker_start import launch_and_report
    from yarrow.container.launch.template_client import TemplateLauncher

    found = []
    for started in (forked, None):
        launcher = TemplateLauncher(launch_settings("report")._replace(environment={}), 2, started)
        await launcher.start()
        template = launcher.template_pid
        facts = (await launch_and_report(OpenLauncher(launcher, 2, Path(folder)))).facts
        # Now that it has made a worker. While a process is being executed, its command line is empty.
        command = " ".join(psutil.Process(template).cmdline())
        await launcher.close()
        found.append({**facts, "template": str(template), "command": command})
    return found


if __name__ == "__main__":
    forked = fork_template("tests.unit.container.supervisor.worker_mains:report")
    try:
        import asyncio

        assert forked is not None
        told = asyncio.run(reports(os.getcwd()))
        ends = [forked.process.pid, forked.process.returncode, forked.control.fileno()]
        print(json.dumps([told, ends]))
    finally:
        # Neither the template nor a worker may come here.
        print("ended", os.getpid(), file=sys.stderr)
