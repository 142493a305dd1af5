"""The `yarrow` command: Flink's actions, flags and lines.

Owner: the main thread. Commands import what they need when they run: `yarrow run` must start as fast as
`python job.py`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from yarrow.cli.errors import CommandError, report_failure
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

if TYPE_CHECKING:
    from yarrow.cli.program import Program
    from yarrow.cli.rest_client import RestClient
    from yarrow.cli.yarn_flags import YarnFlags
    from yarrow.runtime.config.settings import Settings

_JOB_ID = re.compile(r"[0-9a-fA-F]{32}")
#: Flags of the program itself may follow its name: nothing behind it is ours.
_PROGRAM = {"allow_interspersed_args": False, "ignore_unknown_options": True}
_HELP = {"help_option_names": ["-h", "--help"]}
_RUN_APPLICATION = (
    "Runs a program in an application of its own on YARN; main() runs there, nothing of it here."
)

app = typer.Typer(
    name="yarrow",
    help="Runs stream programs and clusters. `yarrow ACTION -h` shows the flags of an action.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_HELP,
)


def _program(
    arguments: Sequence[str] | None,
    script: str | None,
    module: str | None,
    entry: str | None,
    python_files: str | None,
) -> Program:
    from yarrow.cli.program import Program

    rest = list(arguments or ())
    path = script
    if script is None and module is None and rest:
        path = rest.pop(0)
        if path.startswith("-"):
            raise CommandError(f"There is no flag {path}: `yarrow run -h` shows those there are.")
    files = tuple(file for file in (python_files or "").split(",") if file)
    return Program(path, entry or module, tuple(rest), files)


def _run_settings(
    dynamic: Sequence[str] | None,
    target: str | None,
    address: str | None,
    values: dict[str, object],
    flags: YarnFlags | None = None,
) -> Settings:
    from yarrow.cli.targets import NO_FLAGS, load_configuration, with_target

    config = load_configuration(dynamic or ())
    config = config.overlay(
        {key: value for key, value in values.items() if value is not None}, "the command line"
    )
    config = with_target(config, target, address, flags or NO_FLAGS)
    config.validate()
    return config


@app.command("run-application", context_settings={**_PROGRAM, **_HELP}, help=_RUN_APPLICATION)
@app.command(context_settings={**_PROGRAM, **_HELP})
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
    allow_non_restored: Annotated[bool, typer.Option("-n", "--allowNonRestoredState")] = False,
    claim_mode: Annotated[str | None, typer.Option("-cm", "--claimMode")] = None,
    restore_mode: Annotated[str | None, typer.Option("-rm", "--restoreMode", hidden=True)] = None,
    shutdown_on_exit: Annotated[
        bool, typer.Option("-sae", "--shutdownOnAttachedExit", help="Ends the cluster with this command.")
    ] = False,
    classpath: Annotated[list[str] | None, typer.Option("-C", "--classpath", hidden=True)] = None,
    zookeeper_namespace: Annotated[str | None, typer.Option("-z", "--zookeeperNamespace")] = None,
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
    yarn_dynamic: YarnDynamic = None,
    yarn_detached: YarnDetached = False,
    yarn_query: YarnQuery = False,
    yarn_streaming: YarnStreaming = False,
    yarn_jar: YarnJar = None,
) -> None:
    """Runs a program: `yarrow run job.py --its-own flags` does what `python job.py` does, with flags before it."""
    from yarrow.cli.run_command import run as run_it
    from yarrow.cli.targets import with_default_target
    from yarrow.cli.yarn_flags import YarnFlags, application_target, say_without_effect

    if classpath:
        raise CommandError(
            "-C names Java classes, which this engine does not run: ship Python files with -pyfs."
        )
    _change_interpreter(py_client_executable)
    say_without_effect(yarn_jar, yarn_streaming)
    if yarn_query:
        return _show_yarn([*(dynamic or ()), *(yarn_dynamic or ())])
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
        "python.executable": py_executable,
        "python.pythonpath": py_path,
    }
    program = _program(arguments, python, py_module, entry_class, py_files)
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
    )
    both = [*(dynamic or ()), *(yarn_dynamic or ())]
    if context.info_name == "run-application":
        target = application_target(target or executor)
    config = with_default_target(_run_settings(both, target or executor, address, values, flags))
    run_it(program, config)


def _whole_path(path: str | None) -> str | None:
    """A path below the folder of the command is made whole: the cluster has another folder."""
    return os.path.abspath(path) if path is not None and os.path.exists(path) else path


@app.command(context_settings={**_PROGRAM, **_HELP})
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
    config = _run_settings(dynamic, target, address, values, YarnFlags(application_id=application_id))
    show(_program(arguments, python, py_module, entry_class, py_files), config, code)


@app.command("list", context_settings=_HELP)
def list_jobs(
    running: Annotated[bool, typer.Option("-r", "--running", help="Running jobs only.")] = False,
    scheduled: Annotated[bool, typer.Option("-s", "--scheduled", help="Scheduled jobs only.")] = False,
    every: Annotated[bool, typer.Option("-a", "--all", help="All jobs, ended ones too.")] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Lists the jobs of a cluster."""
    from yarrow.cli.job_commands import list_jobs as list_them

    list_them(_rest(dynamic, target, address, application_id), running, scheduled, every)


@app.command(context_settings=_HELP)
def cancel(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="[DIR] JOB", help="The job.")] = None,
    with_savepoint: Annotated[
        bool,
        typer.Option("-s", "--withSavepoint", help="Take a savepoint before, in DIR. Deprecated: use stop."),
    ] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Cancels a job of a cluster."""
    from yarrow.cli.job_commands import cancel_job
    from yarrow.cli.savepoint_commands import cancel_with_savepoint

    arguments = arguments or []
    if not with_savepoint:
        if len(arguments) != 1:
            raise CommandError(f"cancel takes one JOB_ID, not {len(arguments)}; a directory needs -s.")
        cancel_job(_rest(dynamic, target, address, application_id), arguments[0])
        return
    # Flink's forms: `cancel -s JOB`, `cancel -s DIR JOB`, and the job before the flag.
    jobs = [argument for argument in arguments if _JOB_ID.fullmatch(argument)]
    directories = [argument for argument in arguments if argument not in jobs]
    if len(jobs) != 1 or len(directories) > 1:
        raise CommandError(f"cancel -s takes [DIR] JOB, not {' '.join(arguments)}.")
    cancel_with_savepoint(
        _rest(dynamic, target, address, application_id), jobs[0], next(iter(directories), None)
    )


Format = Annotated[
    str, typer.Option("-type", "--type", metavar="canonical|native", help="Form of the savepoint.")
]
NotWaiting = Annotated[bool, typer.Option("-detached", "--detached", help="Do not wait for the savepoint.")]


@app.command(context_settings=_HELP)
def savepoint(
    arguments: Annotated[list[str] | None, typer.Argument(metavar="JOB [DIR]", help="The job.")] = None,
    dispose_path: Annotated[
        str | None, typer.Option("-d", "--dispose", metavar="PATH", help="Delete this savepoint instead.")
    ] = None,
    format_type: Format = "canonical",
    detached: NotWaiting = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Takes a savepoint of a running job, or deletes one."""
    from yarrow.cli.savepoint_commands import dispose, take_savepoint

    rest = _rest(dynamic, target, address, application_id)
    if dispose_path is not None:
        if arguments:
            raise CommandError(f"savepoint -d takes a path and no job, not {' '.join(arguments)}.")
        dispose(rest, dispose_path)
        return
    if not arguments or len(arguments) > 2:
        raise CommandError("savepoint takes JOB [DIR]: `yarrow list` shows the jobs.")
    directory = arguments[1] if len(arguments) == 2 else None
    take_savepoint(rest, arguments[0], directory, format_type, detached)


@app.command(context_settings=_HELP)
def rescale(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    parallelism: Annotated[int, typer.Argument(help="Its parallelism from now on.", min=1)],
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Changes the parallelism of a running job, which goes on from a checkpoint."""
    from yarrow.cli.job_commands import rescale_job

    rescale_job(_rest(dynamic, target, address, application_id), job_id, parallelism)


@app.command(context_settings=_HELP)
def stop(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    directory: Annotated[
        str | None, typer.Option("-p", "--savepointPath", metavar="DIR", help="Where the savepoint goes.")
    ] = None,
    drain: Annotated[
        bool, typer.Option("-d", "--drain", help="Send the last watermark before, so that all timers fire.")
    ] = False,
    format_type: Format = "canonical",
    detached: NotWaiting = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Stops a job with a savepoint."""
    from yarrow.cli.savepoint_commands import stop as stop_it

    stop_it(_rest(dynamic, target, address, application_id), job_id, directory, drain, format_type, detached)


@app.command(context_settings=_HELP)
def checkpoint(
    job_id: Annotated[str, typer.Argument(help="The job.")],
    full: Annotated[
        bool, typer.Option("-full", "--full", help="Refer to nothing of earlier checkpoints.")
    ] = False,
    dynamic: Dynamic = None,
    target: Target = None,
    address: Address = None,
    application_id: ApplicationId = None,
) -> None:
    """Takes a checkpoint of a running job."""
    from yarrow.cli.savepoint_commands import take_checkpoint

    take_checkpoint(_rest(dynamic, target, address, application_id), job_id, full)


@app.command("check-savepoint", context_settings={**_PROGRAM, **_HELP})
def check_savepoint(
    arguments: Annotated[
        list[str], typer.Argument(metavar="PROGRAM PATH [ARGUMENTS]", help="Program and savepoint.")
    ],
    parallelism: Parallelism = None,
    py_files: PyFiles = None,
    allow_non_restored: Annotated[bool, typer.Option("-n", "--allowNonRestoredState")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Prints the answer as JSON.")] = False,
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
    config = _run_settings(dynamic, None, None, values)
    program = _program([program_path, *rest], None, None, None, py_files)
    if not check(program, path, config, as_json=as_json):
        raise typer.Exit(1)


@app.command("yarn-session", context_settings=_HELP, hidden=True)
@app.command(context_settings=_HELP)
def session(
    containers: Annotated[
        int | None, typer.Option("-n", "--container", min=1, help="TaskExecutors taken first and kept.")
    ] = None,
    name: Annotated[str | None, typer.Option("-nm", "--name", help="Name of the application.")] = None,
    master_memory: Annotated[
        str | None,
        typer.Option(
            "-jm", "--jobManagerMemory", metavar="SIZE", help="Memory of the master; MB without unit."
        ),
    ] = None,
    task_memory: Annotated[
        str | None,
        typer.Option(
            "-tm", "--taskManagerMemory", metavar="SIZE", help="Memory of a TaskExecutor; MB without unit."
        ),
    ] = None,
    slots: Annotated[
        int | None, typer.Option("-s", "--slots", min=1, help="Slots of a TaskExecutor.")
    ] = None,
    detached: Annotated[
        bool, typer.Option("-d", "--detached", help="Return when the session runs, and leave it running.")
    ] = False,
    queue: Annotated[str | None, typer.Option("-qu", "--queue", help="Queue of the application.")] = None,
    dynamic: Dynamic = None,
    ship: Annotated[
        list[str] | None,
        typer.Option("-t", "--ship", metavar="PATH", help="Files and folders put into every container."),
    ] = None,
    application_id: Annotated[
        str | None,
        typer.Option(
            "-id", "--applicationId", metavar="APPLICATION", help="Attach to a session, by id or name."
        ),
    ] = None,
    query: Annotated[
        bool, typer.Option("-q", "--query", help="Show nodes, memory, cores and queues of YARN instead.")
    ] = False,
    streaming: Annotated[bool, typer.Option("-st", "--streaming", hidden=True)] = False,
    zookeeper_namespace: Annotated[str | None, typer.Option("-z", "--zookeeperNamespace")] = None,
    node_label: Annotated[
        str | None, typer.Option("-nl", "--nodeLabel", help="Node label of the application.")
    ] = None,
    application_type: Annotated[
        str | None, typer.Option("-at", "--applicationType", help="Tag of the application.")
    ] = None,
    jar: Annotated[str | None, typer.Option("-j", "--jar", hidden=True)] = None,
    address: Annotated[str | None, typer.Option("-m", "--jobmanager", hidden=True)] = None,
) -> None:
    """Starts a session on YARN, or attaches to one with -id; on standard input it takes `stop` and `help`."""
    from yarrow.cli.session_command import attach, start
    from yarrow.cli.yarn_flags import YARN_CLUSTER, YarnFlags, say_without_effect

    if query:
        return _show_yarn(dynamic or ())
    if address not in (None, YARN_CLUSTER):
        raise CommandError(f"-m {address}: a session is started on YARN; name one that runs with -id.")
    say_without_effect(jar, streaming)
    flags = YarnFlags(
        application_id=application_id,
        containers=containers,
        master_memory=master_memory,
        task_memory=task_memory,
        slots=slots,
        queue=queue,
        name=name,
        application_type=application_type,
        ship=ship,
        node_label=node_label,
        zookeeper_namespace=zookeeper_namespace,
    )
    values: dict[str, object] = {"execution.attached": not detached}
    config = _run_settings(dynamic, "yarn-session", None, values, flags)
    raise typer.Exit(attach(config, detached) if application_id is not None else start(config, detached))


ApplicationArgument = Annotated[
    str | None, typer.Argument(metavar="[APPLICATION]", help="Id or name; the properties file's without.")
]


@app.command(context_settings=_HELP)
def token(application: ApplicationArgument = None, dynamic: Dynamic = None) -> None:
    """Prints the REST token of an application on YARN, else of the standalone cluster, and nothing else."""
    from yarrow.cli.applications import application_of
    from yarrow.cli.cluster_token import cluster_token, means_cluster

    config = _application_settings(application, dynamic)
    print(cluster_token(config) if means_cluster(config) else application_of(config).rest_token)


@app.command(context_settings=_HELP)
def proxy(
    application: ApplicationArgument = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; a free one without.")] = 0,
    dynamic: Dynamic = None,
) -> None:
    """Relays REST of an application on YARN, else of the standalone cluster, with its token, to a loopback port."""
    from yarrow.cli.proxy_command import run_proxy

    run_proxy(_application_settings(application, dynamic), port)


@app.command(context_settings=_HELP)
def doctor(dynamic: Dynamic = None) -> None:
    """Look at Java, Hadoop, HDFS, YARN and Python before a first submission: OK, WARN or FAIL with the setting."""
    from yarrow.cli.doctor import main as examine

    examine(_configuration(dynamic))


@app.command("start-cluster", context_settings=_HELP)
def start_cluster(dynamic: Dynamic = None) -> None:
    """Starts a JobManager and the TaskExecutors of conf/workers (one without it) on this machine."""
    from yarrow.cli.cluster_commands import start_cluster as start

    start(_configuration(dynamic), dynamic or ())


@app.command("stop-cluster", context_settings=_HELP)
def stop_cluster(dynamic: Dynamic = None) -> None:
    """Stops what start-cluster started, and nothing else."""
    from yarrow.cli.cluster_commands import stop_cluster as stop

    stop(_configuration(dynamic))


@app.command(context_settings=_HELP)
def jobmanager(dynamic: Dynamic = None) -> None:
    """Runs the master of a standalone cluster in the foreground."""
    from yarrow.cli.standalone import run_job_manager

    raise typer.Exit(run_job_manager(_configuration(dynamic)))


@app.command(context_settings=_HELP)
def taskmanager(dynamic: Dynamic = None) -> None:
    """Runs a TaskExecutor of a standalone cluster in the foreground."""
    from yarrow.cli.standalone import run_task_manager

    raise typer.Exit(run_task_manager(_configuration(dynamic)))


@app.command(context_settings=_HELP)
def shell(
    where: Annotated[str, typer.Argument(help="local or remote.")] = "local",
    host: Annotated[str | None, typer.Argument(help="Host of a remote cluster.")] = None,
    port: Annotated[int | None, typer.Argument(help="Its REST port.")] = None,
    dynamic: Dynamic = None,
    address: Address = None,
    py_files: PyFiles = None,
) -> None:
    """Opens a Python prompt with an environment `env`, embedded or on a cluster (`shell remote HOST PORT`)."""
    from yarrow.cli.shell import open_shell

    if where not in ("local", "remote"):
        raise CommandError(f"yarrow shell {where!r}: expected local, or remote HOST PORT.")
    if where == "remote" and address is None:
        if host is None or port is None:
            raise CommandError("yarrow shell remote needs HOST and PORT of the cluster's REST server.")
        address = f"{host}:{port}"
    open_shell(_run_settings(dynamic, None, address, {"python.files": py_files}))


def _configuration(dynamic: Sequence[str] | None) -> Settings:
    from yarrow.cli.targets import load_configuration

    return load_configuration(dynamic or ())


def _rest(
    dynamic: Sequence[str] | None,
    target: str | None,
    address: str | None,
    application_id: str | None,
) -> RestClient:
    """REST of the cluster that flags, configuration or the properties file name."""
    from yarrow.cli.targets import rest_client, with_session
    from yarrow.cli.yarn_flags import YarnFlags

    flags = YarnFlags(application_id=application_id)
    return rest_client(with_session(_run_settings(dynamic, target, address, {}, flags)))


def _application_settings(application: str | None, dynamic: Sequence[str] | None) -> Settings:
    from yarrow.cli.yarn_flags import YarnFlags

    return _run_settings(dynamic, "yarn-session", None, {}, YarnFlags(application_id=application))


def _show_yarn(dynamic: Sequence[str]) -> None:
    from yarrow.cli.yarn_query import show_resources

    show_resources(_configuration(dynamic))


def _change_interpreter(executable: str | None) -> None:
    """Goes on in another interpreter, with the same arguments but this one."""
    if executable is None or os.path.realpath(executable) == os.path.realpath(sys.executable):
        return
    arguments, skip = [], False
    for argument in sys.argv[1:]:
        if not skip and argument not in ("-pyclientexec", "--pyClientExecutable"):
            arguments.append(argument)
        skip = argument in ("-pyclientexec", "--pyClientExecutable")
    os.execvp(executable, [executable, "-m", "yarrow.cli.main", *arguments])


def main() -> int:
    """The command; returns its exit status: 1 after an error, 130 after Ctrl-C, else the program's own."""
    from yarrow.cli.run_command import exit_status

    return _guarded(lambda: app(standalone_mode=False, prog_name="yarrow"), exit_status)


def _guarded(command: Callable[[], object], exit_status: Callable[[SystemExit], int]) -> int:
    try:
        result = command()
    except SystemExit as end:
        return exit_status(end)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        # Wrong flags: the library's own class differs between its versions, what it can do does not.
        show = getattr(error, "show", None)
        if show is not None:
            show()
        report_failure(CommandError(str(error)) if show is not None else error)
        return 1
    return result if isinstance(result, int) else 0


if __name__ == "__main__":
    sys.exit(main())
