"""Actions with a program: run, run-application, info, verify, check-savepoint, schedule, shell.

Owner: the main thread. Each action imports what it needs when it runs: `yarrow run` must start as fast as
`python job.py`.
"""

from __future__ import annotations

import typer

from yarrow.cli.flag_settings import program_of, settings_of, show_yarn
from yarrow.cli.parameters import flags
from yarrow.cli.parameters.action import Given, action
from yarrow.client.errors import CommandError

_RUN = (
    flags.ARGUMENTS,
    flags.PYTHON,
    flags.PY_MODULE,
    flags.ENTRY_CLASS,
    flags.DETACHED,
    flags.PARALLELISM,
    flags.SAVEPOINT,
    flags.HISTORY_UNTIL,
    flags.ALLOW_NON_RESTORED,
    flags.RESTORE_MODE,
    flags.CLAIM_MODE,
    flags.SHUTDOWN_ON_EXIT,
    flags.CLASSPATH,
    flags.CLUSTER_ID,
    flags.PY_FILES,
    flags.PY_ARCHIVES,
    flags.PY_REQUIREMENTS,
    flags.PY_EXECUTABLE,
    flags.PY_CLIENT_EXECUTABLE,
    flags.PY_PATH,
    flags.DYNAMIC,
    flags.TARGET,
    flags.OLD_TARGET,
    flags.ADDRESS,
    flags.APPLICATION_ID,
    *flags.YARN_OF_RUN,
)


@action(*_RUN)
def run(given: Given) -> None:
    """Runs a program: `yarrow run job.py --its-own flags` does what `python job.py` does, with flags before it."""
    _run(given, given["target"] or given["executor"])


@action(*_RUN)
def run_application(given: Given) -> None:
    """Runs a program in an application of its own on YARN; main() runs there, nothing of it here."""
    from yarrow.cli.parameters.yarn_flags import application_target

    _run(given, application_target(given["target"] or given["executor"]))


@action(
    flags.LETTERS_AND_PROGRAM,
    flags.LETTER_UID,
    flags.TRUST_PICKLES,
    flags.LETTERS_PER_SECOND,
    flags.KAFKA_PROPERTIES,
    flags.PARALLELISM,
    flags.SAVEPOINT.with_help("The savepoint or checkpoint from which the program's own sources go on."),
    flags.ALLOW_NON_RESTORED,
    flags.CLAIM_MODE,
    flags.DETACHED,
    flags.PY_FILES,
    flags.PY_ARCHIVES,
    flags.PY_REQUIREMENTS,
    flags.DYNAMIC,
    flags.TARGET,
    flags.ADDRESS,
    flags.APPLICATION_ID,
)
def replay_dead_letters(given: Given) -> None:
    """Feeds dead letters to the operators of a repaired program that bear their uids, each letter once.

    Exit status 0: all were taken. 1: an error. 2: some were refused again, or hold text alone.
    """
    from yarrow.cli.letter_replay.replay import LetterReplay, ReplaySettings
    from yarrow.cli.run_command import run as run_it
    from yarrow.cli.targets import with_default_target
    from yarrow.client.targets import YARN_APPLICATION
    from yarrow.runtime.config.options import execution

    if len(given["arguments"]) < 2:
        raise CommandError("replay-dead-letters takes LETTERS PROGRAM: files of dead letters, and a script.")
    letters, program_path, *rest = given["arguments"]
    config = with_default_target(settings_of(given, given["target"], given["address"]))
    if config.get(execution.TARGET) == YARN_APPLICATION:
        raise CommandError("replay-dead-letters runs main() here: use a session, or -t yarn-per-job.")
    program = program_of(given, [program_path, *rest])
    program.check()
    how = ReplaySettings(
        given["uids"] or (), given["trusts_pickles"], given["rows_per_second"], given["kafka_properties"]
    )
    replay = LetterReplay.of(letters, config, how)
    replay.begin()
    run_it(program, config, replay.executor_around)
    status = replay.report()
    if status:
        raise typer.Exit(status)


def _run(given: Given, target: str | None) -> None:
    from yarrow.cli.client_interpreter import go_on_in_client_interpreter
    from yarrow.cli.parameters.yarn_flags import YarnFlags, say_of_running_session, say_without_effect
    from yarrow.cli.run_command import run as run_it
    from yarrow.cli.targets import with_default_target
    from yarrow.client.targets import YARN_APPLICATION, YARN_SESSION
    from yarrow.runtime.config.options import execution

    say_without_effect(given["jar"], given["streaming"])
    if given["query"]:
        return show_yarn(given)
    program = program_of(given, given["arguments"])
    values = {}
    if program.archive is not None:
        values["python.files"] = ",".join(filter(None, (program.archive, given["py_files"])))
    config = with_default_target(settings_of(given, target, given["address"], values=values))
    if config.get(execution.TARGET) == YARN_SESSION:
        say_of_running_session(YarnFlags(**given.of_yarn()), is_run=True)
    if config.get(execution.TARGET) != YARN_APPLICATION:
        go_on_in_client_interpreter(config)
    run_it(program, config)


@action(
    flags.ARGUMENTS,
    flags.PYTHON,
    flags.PY_MODULE,
    flags.ENTRY_CLASS,
    flags.PARALLELISM,
    flags.PY_FILES,
    flags.DYNAMIC,
    flags.TARGET,
    flags.ADDRESS,
    flags.APPLICATION_ID,
    flags.CODE,
)
def info(given: Given) -> None:
    """Shows the plan of a program; runs its main() only so far and starts nothing."""
    from yarrow.cli.run_command import info as show

    # Where it would run changes nothing in the plan, but is checked as `run` checks it.
    config = settings_of(given, given["target"], given["address"])
    show(program_of(given, given["arguments"]), config, given["code"])


@action(
    flags.PROGRAM_AND_SAVEPOINT,
    flags.PARALLELISM,
    flags.PY_FILES,
    flags.ALLOW_NON_RESTORED.with_help("As with `run -n`: state of operators that the program lacks."),
    flags.AS_JSON,
    flags.OPEN_FUNCTIONS,
    flags.DYNAMIC,
)
def check_savepoint(given: Given) -> None:
    """Shows what of a savepoint a program would restore, and what not and why; starts nothing."""
    from yarrow.cli.savepoint_commands import check

    if len(given["arguments"]) < 2:
        raise CommandError("check-savepoint takes PROGRAM PATH: a script, and the folder of a savepoint.")
    program_path, path, *rest = given["arguments"]
    config = settings_of(given, None, None)
    program = program_of(given, [program_path, *rest])
    if not check(program, path, config, as_json=given["as_json"], open_functions=given["open_functions"]):
        raise typer.Exit(1)


@action(
    flags.ARGUMENTS,
    flags.PYTHON,
    flags.PY_MODULE,
    flags.PARALLELISM,
    flags.PY_FILES,
    flags.DYNAMIC,
    flags.FIRST_JOB,
)
def verify(given: Given) -> None:
    """Runs a bounded program as a stream and as a batch program, and compares the rows of its sinks.

    Exit status 0: equal. 1: they differ. 2: they could not be compared.
    """
    from yarrow.cli.run_command import planned_job
    from yarrow.cli.verification.both_modes import check_target
    from yarrow.cli.verification.both_modes import verify as compare

    config = settings_of(given, None, None)
    check_target(config)
    planned = planned_job(program_of(given, given["arguments"]), config)
    if not compare(planned, config, first_job_only=given["first_job"]):
        raise typer.Exit(1)


@action(
    flags.ARGUMENTS,
    flags.INTERVAL,
    flags.CRON,
    flags.TIME_ZONE,
    flags.PYTHON,
    flags.PY_MODULE,
    flags.PARALLELISM,
    flags.PY_FILES,
    flags.PY_ARCHIVES,
    flags.PY_REQUIREMENTS,
    flags.DYNAMIC,
    flags.TARGET,
    flags.ADDRESS,
    flags.APPLICATION_ID,
)
def schedule(given: Given) -> None:
    """Has a cluster run a bounded program again and again; `list` shows its runs and next time, `cancel` ends it."""
    from yarrow.cli.schedule_commands import schedule as schedule_it
    from yarrow.cli.targets import with_default_target

    config = with_default_target(settings_of(given, given["target"], given["address"]))
    program = program_of(given, given["arguments"])
    schedule_it(program, config, given["interval"], given["cron"], given["time_zone"])


@action(flags.WHERE, flags.HOST, flags.PORT, flags.DYNAMIC, flags.ADDRESS, flags.PY_FILES)
def shell(given: Given) -> None:
    """Opens a Python prompt with an environment `env`, embedded or on a cluster (`shell remote HOST PORT`)."""
    from yarrow.cli.shell import open_shell

    where, host, port, address = (given[name] for name in ("where", "host", "port", "address"))
    if where not in ("local", "remote"):
        raise CommandError(f"yarrow shell {where!r}: expected local, or remote HOST PORT.")
    if where == "remote" and address is None:
        if host is None or port is None:
            raise CommandError("yarrow shell remote needs HOST and PORT of the cluster's REST server.")
        address = f"{host}:{port}"
    open_shell(settings_of(given, None, address))
