"""Actions with clusters: standalone ones, sessions on YARN, and the way to their REST.

Owner: the main thread. Each action imports what it needs when it runs.
"""

from __future__ import annotations

from typing import Annotated

import typer

from yarrow.cli.flag_settings import application_settings, configuration, settings_of, show_yarn
from yarrow.cli.flags import Dynamic, YarnEnvironment
from yarrow.client.errors import CommandError

ApplicationArgument = Annotated[
    str | None, typer.Argument(metavar="[APPLICATION]", help="Id or name; the properties file's without.")
]


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
    zookeeper_namespace: Annotated[
        str | None,
        typer.Option("-z", "--zookeeperNamespace", metavar="ID", help="high-availability.cluster-id."),
    ] = None,
    node_label: Annotated[
        str | None, typer.Option("-nl", "--nodeLabel", help="Node label of the application.")
    ] = None,
    application_type: Annotated[
        str | None, typer.Option("-at", "--applicationType", help="Tag of the application.")
    ] = None,
    environment: YarnEnvironment = None,
    jar: Annotated[str | None, typer.Option("-j", "--jar", hidden=True)] = None,
    address: Annotated[str | None, typer.Option("-m", "--jobmanager", hidden=True)] = None,
) -> None:
    """Starts a session on YARN, or attaches to one with -id; on standard input it takes `stop` and `help`."""
    from yarrow.cli.session_command import attach, start
    from yarrow.cli.yarn_flags import YarnFlags, say_of_running_session, say_without_effect
    from yarrow.client.targets import YARN_CLUSTER

    if query:
        return show_yarn(dynamic or ())
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
        environment=environment,
    )
    if application_id is not None:
        say_of_running_session(flags)
    values: dict[str, object] = {"execution.attached": not detached}
    config = settings_of(dynamic, "yarn-session", None, values, flags)
    raise typer.Exit(attach(config, detached) if application_id is not None else start(config, detached))


def token(application: ApplicationArgument = None, dynamic: Dynamic = None) -> None:
    """Prints the REST token of an application on YARN, else of the standalone cluster, and nothing else."""
    from yarrow.cli.targets import means_cluster
    from yarrow.client.rest.cluster_token import cluster_token
    from yarrow.client.yarn.applications import application_of

    config = application_settings(application, dynamic)
    print(cluster_token(config) if means_cluster(config) else application_of(config).rest_token)


def proxy(
    application: ApplicationArgument = None,
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; a free one without.")] = 0,
    dynamic: Dynamic = None,
) -> None:
    """Relays REST of an application on YARN, else of the standalone cluster, with its token, to a loopback port."""
    from yarrow.cli.proxy_command import run_proxy

    run_proxy(application_settings(application, dynamic), port)


def dashboard(
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="PATH", help="The file, where it is at hand; Maven gets it without."),
    ] = None,
) -> None:
    """Gets Flink's dashboard (flink-runtime-web, Apache License 2.0); clusters started from now on show it at /."""
    from yarrow.cli.dashboard_command import get_dashboard

    get_dashboard(source)


def doctor(dynamic: Dynamic = None) -> None:
    """Looks at Java, Hadoop, HDFS, YARN and Python before a first submission: OK, WARN or FAIL with the setting."""
    from yarrow.cli.doctor.doctor import main as examine

    examine(configuration(dynamic))


def start_cluster(dynamic: Dynamic = None) -> None:
    """Starts a JobManager and the TaskExecutors of conf/workers (one without it) on this machine."""
    from yarrow.cli.cluster_commands import start_cluster as start

    start(configuration(dynamic), dynamic or ())


def stop_cluster(dynamic: Dynamic = None) -> None:
    """Stops what start-cluster started, and nothing else."""
    from yarrow.cli.cluster_commands import stop_cluster as stop

    stop(configuration(dynamic))


def jobmanager(dynamic: Dynamic = None) -> None:
    """Runs the master of a standalone cluster in the foreground."""
    from yarrow.standalone.standalone import run_job_manager

    raise typer.Exit(run_job_manager(configuration(dynamic)))


def taskmanager(dynamic: Dynamic = None) -> None:
    """Runs a TaskExecutor of a standalone cluster in the foreground."""
    from yarrow.standalone.standalone import run_task_manager

    raise typer.Exit(run_task_manager(configuration(dynamic)))
