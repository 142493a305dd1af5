"""`run-application` and `run -t yarn-application`: the program's files go to YARN, where its main() runs.

Owner: the main thread. Nothing of the program is imported or executed here: this module only names its files.
"""

from __future__ import annotations

import threading

from yarrow.cli.program import Program
from yarrow.client.errors import CommandError
from yarrow.client.targets import YARN_APPLICATION
from yarrow.client.yarn.applications import application_of, end_of, end_text, say
from yarrow.client.yarn.yarn_executor import print_how_to_end
from yarrow.runtime.common.errors import JobCancelledError, JobExecutionError
from yarrow.runtime.config.options import execution, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ProgramDescription
from yarrow.runtime.yarn.gateways import ApplicationReport, FinalStatus, YarnUnreachableError

_LOOK = 1.0
#: Seconds between two looks when YARN itself did not answer; each such look prints a line.
_LOOK_AGAIN = 10.0


def run_as_application(program: Program, config: Settings) -> None:
    """Deploys, and returns when the master runs; with execution.attached it waits for the application's end.

    Raises JobExecutionError with YARN's diagnostics if the awaited application failed.
    """
    from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

    if config.is_set(yarn.APPLICATION_ID):
        raise CommandError(
            f"-t {YARN_APPLICATION} starts an application of its own, but {yarn.APPLICATION_ID.key} names a"
            " running application: leave the key out."
        )
    if config.get(execution.SHUTDOWN_ON_ATTACHED_EXIT):
        say(
            f"-sae ({execution.SHUTDOWN_ON_ATTACHED_EXIT.key}) has no effect with -t {YARN_APPLICATION}: main() runs in"
            " the application, which does not end with this command."
        )
    attached = config.get(execution.ATTACHED)
    description = ProgramDescription(
        path=program.path or "",
        module=program.module or "",
        arguments=program.arguments,
        python_files=program.python_files,
    )
    with YarnClusterDescriptor(config, say) as descriptor:
        cluster = descriptor.deploy_application(description, attached=attached)
    print(f"Yarn application {cluster.application_id} ({cluster.name}) runs.")
    print(f"JobManager Web Interface: {cluster.rest_address}", flush=True)
    if not attached:
        print_how_to_end(cluster.application_id)
        return
    _wait(config.overlay({yarn.APPLICATION_ID.key: cluster.application_id}))


def end_if_told(config: Settings, application_id: str) -> ApplicationReport | None:
    """Like `end_of`; also None while the ResourceManager restarts or this machine has no network."""
    try:
        return end_of(config, application_id)
    except YarnUnreachableError as error:
        say(f"{error} This command still waits for {application_id}.")
        threading.Event().wait(_LOOK_AGAIN)
        return None


def _wait(config: Settings) -> None:
    from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

    application, pause = application_of(config), threading.Event()
    try:
        while (report := end_if_told(config, application.application_id)) is None:
            pause.wait(_LOOK)
    except KeyboardInterrupt:
        with YarnClusterDescriptor(config, say) as descriptor:
            descriptor.kill(application.application_id)
        say(f"{application.application_id} was killed by Ctrl-C.")
        raise
    if report.final_status is FinalStatus.KILLED:
        raise JobCancelledError(end_text(report))
    if report.final_status is not FinalStatus.SUCCEEDED:
        raise JobExecutionError(end_text(report))
    print(end_text(report), flush=True)
