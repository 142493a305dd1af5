"""The `yarrow` command: Flink's actions, flags and lines. Which action is which function stands here.

Owner: the main thread. Actions import what they need when they run: `yarrow run` must start as fast as
`python job.py`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import typer

from yarrow.cli import cluster_actions, job_actions, program_actions
from yarrow.cli.errors import CommandError, exit_status, report_failure

_HELP = {"help_option_names": ["-h", "--help"]}
#: Flags of the program itself may follow its name: nothing behind it is ours.
_PROGRAM = {**_HELP, "allow_interspersed_args": False, "ignore_unknown_options": True}
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

# In the order in which help shows them.
app.command("run", context_settings=_PROGRAM)(program_actions.run)
app.command("run-application", context_settings=_PROGRAM, help=_RUN_APPLICATION)(program_actions.run)
app.command("info", context_settings=_PROGRAM)(program_actions.info)
app.command("list", context_settings=_HELP)(job_actions.list_jobs)
app.command("cancel", context_settings=_HELP)(job_actions.cancel)
app.command("savepoint", context_settings=_HELP)(job_actions.savepoint)
app.command("rescale", context_settings=_HELP)(job_actions.rescale)
app.command("stop", context_settings=_HELP)(job_actions.stop)
app.command("checkpoint", context_settings=_HELP)(job_actions.checkpoint)
app.command("check-savepoint", context_settings=_PROGRAM)(program_actions.check_savepoint)
app.command("session", context_settings=_HELP)(cluster_actions.session)
app.command("yarn-session", context_settings=_HELP, hidden=True)(cluster_actions.session)
app.command("token", context_settings=_HELP)(cluster_actions.token)
app.command("proxy", context_settings=_HELP)(cluster_actions.proxy)
app.command("doctor", context_settings=_HELP)(cluster_actions.doctor)
app.command("start-cluster", context_settings=_HELP)(cluster_actions.start_cluster)
app.command("stop-cluster", context_settings=_HELP)(cluster_actions.stop_cluster)
app.command("jobmanager", context_settings=_HELP)(cluster_actions.jobmanager)
app.command("taskmanager", context_settings=_HELP)(cluster_actions.taskmanager)
app.command("shell", context_settings=_HELP)(program_actions.shell)


def main() -> int:
    """The command; returns its exit status: 1 after an error, 130 after Ctrl-C, else the program's own."""
    return _guarded(lambda: app(standalone_mode=False, prog_name="yarrow"))


def _guarded(command: Callable[[], object]) -> int:
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
