"""Actions with clusters: standalone ones, sessions on YARN, and the way to their REST.

Owner: the main thread. Each action imports what it needs when it runs.
"""

from __future__ import annotations

import typer

from yarrow.cli.flag_settings import (
    application_settings,
    configuration,
    dynamic_of,
    settings_of,
    show_yarn,
)
from yarrow.cli.parameters import flags
from yarrow.cli.parameters.action import Given, action
from yarrow.client.errors import CommandError


# In the order in which Flink shows them.
@action(
    flags.CONTAINERS,
    flags.NAME,
    flags.MASTER_MEMORY,
    flags.TASK_MEMORY,
    flags.SLOTS,
    flags.SESSION_DETACHED,
    flags.QUEUE,
    flags.DYNAMIC,
    flags.SHIP,
    flags.SESSION_ID,
    flags.QUERY,
    flags.STREAMING,
    flags.NAMESPACE,
    flags.NODE_LABEL,
    flags.APPLICATION_TYPE,
    flags.ENVIRONMENT,
    flags.JAR,
    flags.SESSION_ADDRESS,
)
def session(given: Given) -> None:
    """Starts a session on YARN, or attaches to one with -id; on standard input it takes `stop` and `help`."""
    from yarrow.cli.parameters.yarn_flags import YarnFlags, say_of_running_session, say_without_effect
    from yarrow.cli.session_command import attach, start
    from yarrow.client.targets import YARN_CLUSTER

    address, detached = given["address"], given["detached"]
    if given["query"]:
        return show_yarn(given)
    if address not in (None, YARN_CLUSTER):
        raise CommandError(f"-m {address}: a session is started on YARN; name one that runs with -id.")
    say_without_effect(given["jar"], given["streaming"])
    attaches = given.has("application_id")
    if attaches:
        say_of_running_session(YarnFlags(**given.of_yarn()))
    values = {"execution.attached": not detached}
    config = settings_of(given, "yarn-session", None, values=values)
    raise typer.Exit(attach(config, detached) if attaches else start(config, detached))


@action(flags.APPLICATION, flags.DYNAMIC)
def token(given: Given) -> None:
    """Prints the REST token of an application on YARN, else of the standalone cluster, and nothing else."""
    from yarrow.cli.targets import means_cluster
    from yarrow.client.rest.cluster_token import cluster_token
    from yarrow.client.yarn.applications import application_of

    config = application_settings(given)
    print(cluster_token(config) if means_cluster(config) else application_of(config).rest_token)


@action(flags.APPLICATION, flags.PROXY_PORT, flags.DYNAMIC)
def proxy(given: Given) -> None:
    """Relays REST of an application on YARN, else of the standalone cluster, with its token, to a loopback port."""
    from yarrow.cli.proxy_command import run_proxy

    run_proxy(application_settings(given), given["port"])


@action(flags.DUMP)
def replay(given: Given) -> None:
    """Decides again what a JobMaster had decided before it failed, from the file that it wrote; starts nothing.

    Exit status 1 and the first event and action that differ, where this version of Yarrow decides otherwise.
    """
    from yarrow.cli.replay_command import run_replay

    run_replay(given["file"])


@action(flags.PAGE)
def dashboard(given: Given) -> None:
    """Gets Flink's dashboard (flink-runtime-web, Apache License 2.0); clusters started from now on show it at /."""
    from yarrow.cli.dashboard_command import get_dashboard

    get_dashboard(given["source"])


@action(flags.DYNAMIC)
def doctor(given: Given) -> None:
    """Looks at Java, Hadoop, HDFS, YARN and Python before a first submission: OK, WARN or FAIL with the setting."""
    from yarrow.cli.doctor.doctor import main as examine

    examine(configuration(given))


@action(flags.DYNAMIC)
def start_cluster(given: Given) -> None:
    """Starts a JobManager and the TaskExecutors of conf/workers (one without it) on this machine."""
    from yarrow.cli.cluster_commands import start_cluster as start

    start(configuration(given), dynamic_of(given))


@action(flags.DYNAMIC)
def stop_cluster(given: Given) -> None:
    """Stops what start-cluster started, and nothing else."""
    from yarrow.cli.cluster_commands import stop_cluster as stop

    stop(configuration(given))


@action(flags.DYNAMIC)
def jobmanager(given: Given) -> None:
    """Runs the master of a standalone cluster in the foreground."""
    from yarrow.standalone.standalone import run_job_manager

    raise typer.Exit(run_job_manager(configuration(given)))


@action(flags.DYNAMIC)
def taskmanager(given: Given) -> None:
    """Runs a TaskExecutor of a standalone cluster in the foreground."""
    from yarrow.standalone.standalone import run_task_manager

    raise typer.Exit(run_task_manager(configuration(given)))
