"""run and info: run a program in this process, on the target of flags and configuration.

Owner: the main thread. The program's own settings override those of the command line.
"""

from __future__ import annotations

import json
import signal
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from types import FrameType

from yarrow.cli.errors import ProgramFailedError
from yarrow.cli.program import Program, run_program
from yarrow.client.errors import CommandError
from yarrow.client.targets import LOCAL, YARN_APPLICATION, YARN_PER_JOB
from yarrow.common.job_client import JobClient
from yarrow.common.job_execution_result import JobExecutionResult
from yarrow.datastream.program.job_waiting import cancel_and_wait
from yarrow.datastream.program.program_files import ProgramFiles
from yarrow.runtime.config.options import execution
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.graph.executor import (
    DetachedJobClient,
    LocalFile,
    PipelineExecutor,
    ProgramAborted,
    configuration_in_place,
    executor_for,
    plan_only,
    use_for_this_process,
)
from yarrow.runtime.graph.job_graph import JobGraph
from yarrow.runtime.graph.states import JobType

_PLAN_HEAD = "----------------------- Execution Plan -----------------------"
_PLAN_END = "--------------------------------------------------------------"
_STAGES_HEAD = "------------------------- Batch Plan -------------------------"


class ReportingExecutor:
    """Wraps another executor, and prints the lines for which scripts wait."""

    def __init__(self, executor: PipelineExecutor) -> None:
        self._executor = executor
        self._followed: list[JobClient] = []

    def execute(
        self, job_graph: JobGraph, configuration: Mapping[str, str], files: Sequence[LocalFile]
    ) -> JobClient:
        client = self._executor.execute(job_graph, configuration, files)
        if not isinstance(client, DetachedJobClient):
            self._followed.append(client)
        print(f"Job has been submitted with JobID {client.get_job_id()}", flush=True)
        if not isinstance(client, DetachedJobClient):
            _report_end(client)
        return client

    def cancel_unfinished(self) -> None:
        """Cancels unfinished jobs and waits: Ctrl-C may come before anybody waits for a job."""
        for client in self._followed:
            if not client.get_job_execution_result().done():
                cancel_and_wait(client)
                print(f"Job {client.get_job_id()} was cancelled by Ctrl-C.", file=sys.stderr, flush=True)


def _report_end(client: JobClient) -> None:
    """Prints the job's end before its waiting callers continue: callbacks keep their order."""

    def report(result: JobExecutionResult | None, error: BaseException | None) -> None:
        if result is not None:
            print("Program execution finished")
            print(f"Job with JobID {result.get_job_id()} has finished.")
            print(f"Job Runtime: {result.get_net_runtime()} ms", flush=True)

    client.get_job_execution_result().when_complete(report)


#: Returns an executor that runs jobs by the given one.
ExecutorAround = Callable[[PipelineExecutor], PipelineExecutor]


def run(program: Program, config: Settings, around: ExecutorAround | None = None) -> None:
    """Runs the program. Raises ProgramFailedError for its error.

    `around`: what jobs go through before they reach the executor of the target; None = nothing.
    """
    target = config.get(execution.TARGET) or LOCAL
    # Only YARN can check a program on HDFS.
    if target != YARN_APPLICATION or "://" not in (program.path or ""):
        program.check()
    detached = config.is_set(execution.ATTACHED) and not config.get(execution.ATTACHED)
    if detached and target == LOCAL:
        raise CommandError(
            "-d leaves a job behind that runs on, but the embedded cluster ends with this command. Start a"
            " cluster with `yarrow start-cluster` and name it with -m host:port."
        )
    if target == YARN_APPLICATION:
        from yarrow.cli.application_command import run_as_application

        run_as_application(program, config)
        return
    # A missing file of a flag is not the program's fault, and is reported before the program runs.
    ProgramFiles().all(config)
    if target == YARN_PER_JOB:
        from yarrow.client.yarn.staging import check_local_files

        check_local_files(config)
    if config.get(execution.SHUTDOWN_ON_ATTACHED_EXIT) and not detached:
        end_by_interrupt()
    executor = ReportingExecutor(executor_for(target))
    outer: PipelineExecutor = executor if around is None else around(executor)
    use_for_this_process(outer, config.to_dict(redact=False))
    try:
        run_program(program)
    except KeyboardInterrupt:
        executor.cancel_unfinished()
        raise


def end_by_interrupt() -> None:
    """From now on SIGTERM and SIGHUP act like Ctrl-C: the awaited job is cancelled."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def info(program: Program, config: Settings, code: bool = False) -> None:
    """Prints the plan of the program's first job, or its generated code; nothing is started."""
    from yarrow.runtime.graph.translation.plan import execution_plan_of_job

    graph = planned_graph(program, config)
    if code:
        from yarrow.cli.generated_code import print_generated_code
        from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline

        if is_pipeline(graph):
            raise CommandError(
                f"{graph.name!r} is a pipeline of Spark stages, for which no code is generated: leave out --code"
            )

        print_generated_code(graph)
        return
    print(_PLAN_HEAD)
    print(json.dumps(execution_plan_of_job(graph)))
    print(_PLAN_END)
    print()
    if graph.job_type is JobType.BATCH:
        print_stages(graph, config)
    print("No description provided.")


def print_stages(graph: JobGraph, config: Settings) -> None:
    """Prints what batch mode makes of a bounded job: its stages, exchanges, and what each of them does."""
    from yarrow.runtime.graph.batch.batch_plan_text import lines_of, runner_line
    from yarrow.runtime.graph.batch.batch_planner import plan
    from yarrow.runtime.graph.batch.pipeline_plan import is_pipeline, lines_of_pipeline

    settings = config.overlay(graph.configuration, "the job")
    print(_STAGES_HEAD)
    if is_pipeline(graph):
        print("\n".join(lines_of_pipeline(graph)))
    else:
        print(runner_line(graph))
        print("\n".join(lines_of(plan(graph, combine=settings.get(execution.BATCH_COMBINE)))))
    print(_PLAN_END)
    print()


def planned_graph(program: Program, config: Settings) -> JobGraph:
    """The JobGraph of the program's first `execute`. Raises CommandError if there is none."""
    return planned_job(program, config).job_graph


def planned_job(program: Program, config: Settings) -> ProgramAborted:
    """The end of the program in its first `execute`, with graph and files. Raises CommandError if there is none."""
    try:
        with configuration_in_place(config.to_dict(redact=False)), plan_only():
            run_program(program)
    except ProgramAborted as planned:
        return planned
    except SystemExit as end:
        if end.code not in (None, 0):
            raise ProgramFailedError(f"the program exited with {end.code!r}") from end
    raise CommandError(f"{program.path or program.module}: the program executes no job, so it has no plan.")
