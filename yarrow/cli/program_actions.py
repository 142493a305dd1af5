"""Actions with a program: run, run-application, info, check-savepoint, shell.

Owner: the main thread. Each action imports what it needs when it runs: `yarrow run` must start as fast as
`python job.py`.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from yarrow.cli.flag_settings import program_of, settings_of, show_yarn
from yarrow.cli.flags import (
    Address,
    ApplicationId,
    Arguments,
    Dynamic,
    EntryClass,
    OldTarget,
    Parallelism,
    PyArchives,
    PyClientExecutable,
    PyExecutable,
    PyFile,
    PyFiles,
    PyModule,
    PyPath,
    PyRequirements,
    Target,
    YarnContainers,
    YarnDetached,
    YarnDynamic,
    YarnEnvironment,
    YarnJar,
    YarnMasterMemory,
    YarnName,
    YarnNamespace,
    YarnNodeLabel,
    YarnQuery,
    YarnQueue,
    YarnShip,
    YarnSlots,
    YarnStreaming,
    YarnTaskMemory,
    YarnType,
)
from yarrow.client.errors import CommandError


def run(
    context: typer.Context,
    arguments: Arguments = None,
    python: PyFile = None,
    py_module: PyModule = None,
    entry_class: EntryClass = None,
    detached: Annotated[
        bool, typer.Option("-d", "--detached", help="Do not wait for the job; needs a cluster.")
    ] = False,
    parallelism: Parallelism = None,
    savepoint: Annotated[
        str | None, typer.Option("-s", "--fromSavepoint", help="Restore from a savepoint.")
    ] = None,
    allow_non_restored: Annotated[
        bool,
        typer.Option(
            "-n", "--allowNonRestoredState", help="Leave out state of operators that the program lacks."
        ),
    ] = False,
    claim_mode: Annotated[
        str | None,
        typer.Option(
            "-cm",
            "--claimMode",
            metavar="claim|no_claim",
            help="Whether the savepoint becomes the job's own.",
        ),
    ] = None,
    restore_mode: Annotated[str | None, typer.Option("-rm", "--restoreMode", hidden=True)] = None,
    shutdown_on_exit: Annotated[
        bool,
        typer.Option(
            "-sae",
            "--shutdownOnAttachedExit",
            help="The job, and a per-job application, end with this command, however that ends; not in application"
            " mode.",
        ),
    ] = False,
    classpath: Annotated[list[str] | None, typer.Option("-C", "--classpath", hidden=True)] = None,
    zookeeper_namespace: Annotated[
        str | None,
        typer.Option("-z", "--zookeeperNamespace", metavar="ID", help="high-availability.cluster-id."),
    ] = None,
    py_files: PyFiles = None,
    py_archives: PyArchives = None,
    py_requirements: PyRequirements = None,
    py_executable: PyExecutable = None,
    py_client_executable: PyClientExecutable = None,
    py_path: PyPath = None,
    dynamic: Dynamic = None,
    target: Target = None,
    executor: OldTarget = None,
    address: Address = None,
    application_id: ApplicationId = None,
    yarn_containers: YarnContainers = None,
    yarn_master_memory: YarnMasterMemory = None,
    yarn_task_memory: YarnTaskMemory = None,
    yarn_slots: YarnSlots = None,
    yarn_queue: YarnQueue = None,
    yarn_name: YarnName = None,
    yarn_type: YarnType = None,
    yarn_ship: YarnShip = None,
    yarn_node_label: YarnNodeLabel = None,
    yarn_namespace: YarnNamespace = None,
    yarn_environment: YarnEnvironment = None,
    yarn_dynamic: YarnDynamic = None,
    yarn_detached: YarnDetached = False,
    yarn_query: YarnQuery = False,
    yarn_streaming: YarnStreaming = False,
    yarn_jar: YarnJar = None,
) -> None:
    """Runs a program: `yarrow run job.py --its-own flags` does what `python job.py` does, with flags before it."""
    from yarrow.cli.client_interpreter import go_on_in_client_interpreter
    from yarrow.cli.run_command import run as run_it
    from yarrow.cli.targets import with_default_target
    from yarrow.cli.yarn_flags import (
        YarnFlags,
        application_target,
        say_of_running_session,
        say_without_effect,
    )
    from yarrow.client.targets import YARN_APPLICATION, YARN_SESSION
    from yarrow.runtime.config.options import execution

    if classpath:
        raise CommandError(
            "-C names Java classes, which this engine does not run: ship Python files with -pyfs."
        )
    say_without_effect(yarn_jar, yarn_streaming)
    if yarn_query:
        return show_yarn([*(dynamic or ()), *(yarn_dynamic or ())])
    values: dict[str, object] = {
        "parallelism.default": parallelism,
        # Who calls a command waits for it, unless the configuration or -d says otherwise.
        "execution.attached": False if detached or yarn_detached else None,
        "execution.shutdown-on-attached-exit": True if shutdown_on_exit else None,
        "execution.state-recovery.path": _whole_path(savepoint),
        "execution.state-recovery.ignore-unclaimed-state": True if allow_non_restored else None,
        "execution.state-recovery.claim-mode": (claim_mode or restore_mode or "").upper() or None,
        "high-availability.cluster-id": zookeeper_namespace,
        "python.files": py_files,
        "python.archives": py_archives,
        "python.requirements": py_requirements,
        "python.client.executable": py_client_executable,
        "python.executable": py_executable,
        "python.pythonpath": py_path,
    }
    program = program_of(arguments, python, py_module, entry_class, py_files)
    if program.archive is not None:
        values["python.files"] = ",".join(filter(None, (program.archive, py_files)))
    flags = YarnFlags(
        application_id=application_id,
        containers=yarn_containers,
        master_memory=yarn_master_memory,
        task_memory=yarn_task_memory,
        slots=yarn_slots,
        queue=yarn_queue,
        name=yarn_name,
        application_type=yarn_type,
        ship=yarn_ship,
        node_label=yarn_node_label,
        zookeeper_namespace=yarn_namespace,
        environment=yarn_environment,
    )
    both = [*(dynamic or ()), *(yarn_dynamic or ())]
    if context.info_name == "run-application":
        target = application_target(target or executor)
    config = with_default_target(settings_of(both, target or executor, address, values, flags))
    if config.get(execution.TARGET) == YARN_SESSION:
        say_of_running_session(flags, is_run=True)
    if config.get(execution.TARGET) != YARN_APPLICATION:
        go_on_in_client_interpreter(config)
    run_it(program, config)


def _whole_path(path: str | None) -> str | None:
    """A path below the folder of the command is made whole: the cluster has another folder."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


def info(
    arguments: Arguments = None,
    python: PyFile = None,
    py_module: PyModule = None,
    entry_class: EntryClass = None,
    parallelism: Parallelism = None,
    py_files: PyFiles = None,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
    code: Annotated[bool, typer.Option("--code", help="Show the code generated for the chains.")] = False,
) -> None:
    """Shows the plan of a program; runs its main() only so far and starts nothing."""
    from yarrow.cli.run_command import info as show
    from yarrow.cli.yarn_flags import YarnFlags

    # Where it would run changes nothing in the plan, but is checked as `run` checks it.
    values: dict[str, object] = {"parallelism.default": parallelism, "python.files": py_files}
    config = settings_of(dynamic, target, address, values, YarnFlags(application_id=application_id))
    show(program_of(arguments, python, py_module, entry_class, py_files), config, code)


def check_savepoint(
    arguments: Annotated[
        list[str], typer.Argument(metavar="PROGRAM PATH [ARGUMENTS]", help="Program and savepoint.")
    ],
    parallelism: Parallelism = None,
    py_files: PyFiles = None,
    allow_non_restored: Annotated[
        bool,
        typer.Option(
            "-n",
            "--allowNonRestoredState",
            help="As with `run -n`: state of operators that the program lacks.",
        ),
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Prints the answer as JSON.")] = False,
    open_functions: Annotated[
        bool,
        typer.Option(
            "--open", help="Opens functions with state here, and reads what sources and sinks have stored."
        ),
    ] = False,
    dynamic: Dynamic = None,
) -> None:
    """Shows what of a savepoint a program would restore, and what not and why; starts nothing."""
    from yarrow.cli.savepoint_commands import check

    if len(arguments) < 2:
        raise CommandError("check-savepoint takes PROGRAM PATH: a script, and the folder of a savepoint.")
    program_path, path, *rest = arguments
    values: dict[str, object] = {
        "parallelism.default": parallelism,
        "python.files": py_files,
        "execution.state-recovery.ignore-unclaimed-state": True if allow_non_restored else None,
    }
    config = settings_of(dynamic, None, None, values)
    program = program_of([program_path, *rest], None, None, None, py_files)
    if not check(program, path, config, as_json=as_json, open_functions=open_functions):
        raise typer.Exit(1)


def shell(
    where: Annotated[str, typer.Argument(help="local or remote.")] = "local",
    host: Annotated[str | None, typer.Argument(help="Host of a remote cluster.")] = None,
    port: Annotated[int | None, typer.Argument(help="Its REST port.")] = None,
    dynamic: Dynamic = None,
    address: Address = None,
    py_files: PyFiles = None,
) -> None:
    """Opens a Python prompt with an environment `env`, embedded, where execution.target says, or on a cluster
    (`shell remote HOST PORT`).
    """
    from yarrow.cli.shell import open_shell

    if where not in ("local", "remote"):
        raise CommandError(f"yarrow shell {where!r}: expected local, or remote HOST PORT.")
    if where == "remote" and address is None:
        if host is None or port is None:
            raise CommandError("yarrow shell remote needs HOST and PORT of the cluster's REST server.")
        address = f"{host}:{port}"
    open_shell(settings_of(dynamic, None, address, {"python.files": py_files}))
