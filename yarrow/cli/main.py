"""The `yarrow` command: Flink's actions, flags and lines. This module maps actions to functions.

Owner: the main thread. Actions import what they need when they run: `yarrow run` must start as fast as
`python job.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import typer

from yarrow.cli import cluster_actions, job_actions, program_actions
from yarrow.cli.errors import exit_status, report_failure
from yarrow.cli.parameters.action import Action
from yarrow.client.errors import CommandError

_HELP = {"help_option_names": ["-h", "--help"]}
#: Flags of the program itself may follow its name: nothing after it is ours.
_PROGRAM = {**_HELP, "allow_interspersed_args": False, "ignore_unknown_options": True}

app = typer.Typer(
    name="yarrow",
    help="Runs stream programs and clusters. `yarrow ACTION -h` shows the flags of an action.",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings=_HELP,
)

#: Lines of `yarrow -h`, for actions whose own text is longer than one line.
_SHORT = {
    "run": "Runs a program: here, on a cluster, or on YARN.",
    "run-application": "Runs a program in an application on YARN.",
    "info": "Shows the plan of a program.",
    "verify": "Compares a bounded program as a stream and as a batch.",
    "schedule": "Runs a bounded program again and again on a cluster.",
    "replay-dead-letters": "Feeds dead letters to a repaired program.",
    "rescale": "Changes the parallelism of a running job.",
    "rate-limits": "Shows or sets the rate limits of a running job.",
    "watermark": "Shows who holds back the event time of a job.",
    "check-savepoint": "Shows what a program would restore.",
    "session": "Starts a session on YARN, or attaches to one.",
    "list": "Lists the jobs of a cluster.",
    "token": "Prints the REST token of an application or cluster.",
    "proxy": "Relays REST, with its token, to a loopback port.",
    "replay": "Repeats the decisions that a failed JobMaster wrote down.",
    "dashboard": "Gets Flink's page for the clusters started from here.",
    "doctor": "Looks at Java, Hadoop, HDFS, YARN and Python.",
    "start-cluster": "Starts a cluster on this machine.",
    "jobmanager": "Runs a standalone master in the foreground.",
    "taskmanager": "Runs a TaskExecutor in the foreground.",
    "shell": "Opens a Python prompt with an environment `env`.",
}


def _action(name: str, function: Action, **options: Any) -> None:
    app.command(name, short_help=_SHORT.get(name), **{"context_settings": _HELP, **options})(function)


# In the order in which help shows them.
_action("run", program_actions.run, context_settings=_PROGRAM)
_action("run-application", program_actions.run_application, context_settings=_PROGRAM)
_action("info", program_actions.info, context_settings=_PROGRAM)
_action("verify", program_actions.verify, context_settings=_PROGRAM)
_action("schedule", program_actions.schedule, context_settings=_PROGRAM)
_action("replay-dead-letters", program_actions.replay_dead_letters, context_settings=_PROGRAM)
_action("list", job_actions.list_jobs)
_action("cancel", job_actions.cancel)
_action("savepoint", job_actions.savepoint)
_action("rescale", job_actions.rescale)
_action("rate-limits", job_actions.rate_limits)
_action("stop", job_actions.stop)
_action("checkpoint", job_actions.checkpoint)
_action("watermark", job_actions.watermark)
_action("check-savepoint", program_actions.check_savepoint, context_settings=_PROGRAM)
_action("session", cluster_actions.session)
_action("yarn-session", cluster_actions.session, hidden=True)
_action("token", cluster_actions.token)
_action("proxy", cluster_actions.proxy)
_action("replay", cluster_actions.replay)
_action("dashboard", cluster_actions.dashboard)
_action("doctor", cluster_actions.doctor)
_action("start-cluster", cluster_actions.start_cluster)
_action("stop-cluster", cluster_actions.stop_cluster)
_action("jobmanager", cluster_actions.jobmanager)
_action("taskmanager", cluster_actions.taskmanager)
_action("shell", program_actions.shell)


#: Exit status of an error in actions whose status 1 is an answer.
_STATUS_OF_ERRORS = {"verify": 2}


def main() -> int:
    """Runs the command; returns its exit status: 130 after Ctrl-C, else the program's own.

    An error gives 1, and 2 where the action answers with 1.
    """
    arguments = sys.argv[1:]
    status = _guarded(
        lambda: app(arguments or ["--help"], standalone_mode=False, prog_name="yarrow"),
        _STATUS_OF_ERRORS.get(arguments[0] if arguments else "", 1),
    )
    return status if arguments else 1


def _guarded(command: Callable[[], object], status_of_errors: int) -> int:
    try:
        result = command()
    except SystemExit as end:
        return exit_status(end)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        report_failure(_wrong_flags(error) or error)
        return status_of_errors
    return result if isinstance(result, int) else 0


def _wrong_flags(error: Exception) -> CommandError | None:
    """One sentence for an error of the command line's library: the flag, and where flags are explained."""
    # Its own class differs between versions, but has this method.
    words = getattr(error, "format_message", None)
    if words is None:
        return None
    context = getattr(error, "ctx", None)
    action = context.command_path if context is not None else "yarrow ACTION"
    said = words()
    return CommandError(
        f"{said}{'' if said.endswith(('.', '?')) else '.'} `{action} -h` shows its flags and arguments."
    )


if __name__ == "__main__":
    sys.exit(main())
