"""Bounded jobs without Spark on a real YARN: the tasks run in the TaskExecutors' containers, no SparkDriver starts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from tests.support.hadoop.cluster import HadoopCluster
from tests.yarn.batch.bounded_jobs import RESTARTING, Application, Output, write_programs
from tests.yarn.commands import commands_in

TASK_EXECUTOR = "yarrow.container.process.yarn_task_executor"


def test_a_killed_task_executor_costs_a_restart_in_another_container(
    hadoop: HadoopCluster, tmp_path: Path, output: Output
) -> None:
    write_programs(tmp_path)
    with commands_in(hadoop, tmp_path, RESTARTING) as yarrow:
        name = yarrow.name("local")
        submitted = yarrow.ok(
            "run", "-d", "-t", "yarn-per-job", "-ynm", name, "sums.py", *output.arguments, "AUTOMATIC"
        )
        application = Application(yarrow, submitted.application)
        yarrow.eventually(lambda: output.is_waiting, "its tasks run")
        details = application.get(f"/jobs/{submitted.job}")
        assert (details["job-type"], details["batch-runner"]) == ("BATCH", "LOCAL")
        processes = hadoop.container_processes(application.id)
        assert not [each.command for each in processes if "spark" in each.command]
        (executor,) = application.processes(TASK_EXECUTOR)
        output.forget_waiting()
        os.kill(executor, signal.SIGKILL)
        yarrow.eventually(lambda: output.is_waiting, "it begins again in another container")
        (failure, *_) = application.get(f"/jobs/{submitted.job}/exceptions")["exceptionHistory"]["entries"]
        assert "batch driver" in failure["stacktrace"]
        output.open_gate()
        assert yarrow.final_status(application.id) == "SUCCEEDED"
        output.assert_exact()
        yarrow.eventually(lambda: not hadoop.container_processes(application.id), "nothing of it is left")
