"""`yarrow session`: starts a session on YARN, watches it while attached, ends it.

Owner: the main thread; one daemon thread reads standard input, one sends heartbeats. A session that an
attached command started ends with the command, also by Ctrl-C. If this process is killed, the master's own
watch ends it.
"""

from __future__ import annotations

import contextlib
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from yarrow.cli.job_commands import application_lines
from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient, RestError, RestUnavailableError
from yarrow.client.yarn.application_files import ApplicationFiles, SessionProperties
from yarrow.client.yarn.applications import application_of, end_of, end_text, rest_of, say
from yarrow.common.values.secret_keys import is_secret_key
from yarrow.runtime.common.clock import SystemClock
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.options import execution, rpc, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets
from yarrow.runtime.yarn.gateways import (
    ApplicationNotFoundError,
    ApplicationReport,
    FinalStatus,
    YarnError,
)
from yarrow.runtime.yarn.hadoop_configuration import has_hadoop

_HELP = "Commands: stop (or quit) ends the session, help shows this. Ctrl-C does what the end of this command does."
#: Seconds between two looks at the session while attached.
_LOOK = 3.0
#: Seconds in which a session must end by itself before YARN kills it.
_GRACE = 30.0
#: The end of standard input.
_END_OF_INPUT = ""
#: Keys of the command line for the session's start, which do not concern its jobs.
_OF_THE_START = (
    execution.TARGET.key,
    execution.ATTACHED.key,
    yarn.APPLICATION_ID.key,
    yarn.APPLICATION_NAME.key,
    yarn.INITIAL_TASK_EXECUTORS.key,
    yarn.PROPERTIES_FILE_LOCATION.key,
)


def start(config: Settings, detached: bool) -> int:
    """Starts a session, records it for later commands, and watches it unless detached; returns the exit status."""
    from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

    with _interrupted_by_signals():
        with YarnClusterDescriptor(config, say) as descriptor:
            deployed = descriptor.deploy_session(attached=not detached)
        secrets = application_of(config.overlay({yarn.APPLICATION_ID.key: deployed.application_id}))
        try:
            _announce(config, secrets)
        except BaseException:
            end_session(config, secrets)
            raise
        if detached:
            _print_how_to_stop(secrets)
            return 0
        return _attend(config, secrets, ends_with_us=True)


def attach(config: Settings, detached: bool) -> int:
    """Watches a running session; returns the exit status.

    The session outlives this command unless it is stopped.
    """
    secrets = application_of(config)
    rest = rest_of(config, secrets)
    lines = application_lines(rest.get("/overview"), SystemClock())
    print("\n".join([f"JobManager Web Interface: {rest.address}", *lines]), flush=True)
    if detached:
        _print_how_to_stop(secrets)
        return 0
    return _attend(config, secrets, ends_with_us=False)


def end_session(config: Settings, secrets: ClientSecrets) -> ApplicationReport | None:
    """Asks the session to end by REST, and YARN to kill it if it does not; returns its last report.

    Without a configured Hadoop cluster YARN cannot be asked: the session has ended when its REST is gone, and
    there is no report. Raises CommandError if it goes on.
    """
    clock, pause = SystemClock(), threading.Event()
    deadline = clock.monotonic() + _GRACE
    rest = rest_of(config, secrets)
    if not has_hadoop(config):
        rest.json("DELETE", "/cluster")
        _wait_until_gone(rest, secrets, deadline)
        ApplicationFiles.of(config).forget(secrets.application_id)
        return None
    with contextlib.suppress(RestError, RestUnavailableError, CommandError):
        rest.json("DELETE", "/cluster")
    while (report := end_of(config, secrets.application_id)) is None and clock.monotonic() < deadline:
        pause.wait(0.2)
    if report is None:
        from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

        say(f"{secrets.application_id} has not ended within {_GRACE:g} s: YARN kills it.")
        with YarnClusterDescriptor(config, say) as descriptor:
            descriptor.kill(secrets.application_id)
    ApplicationFiles.of(config).forget(secrets.application_id)
    return report


def _wait_until_gone(rest: RestClient, secrets: ClientSecrets, deadline: float) -> None:
    clock, pause = SystemClock(), threading.Event()
    while clock.monotonic() < deadline:
        if not rest.answers():
            return
        pause.wait(0.2)
    raise CommandError(
        f"{secrets.application_id} was asked to end, and its REST server still answers at {rest.address}"
        f" after {_GRACE:g} s. No Hadoop cluster is named that could kill it: set HADOOP_CONF_DIR, and run"
        f" `yarn application -kill {secrets.application_id}`."
    )


def _announce(config: Settings, secrets: ClientSecrets) -> None:
    given = properties_of(config)
    path = ApplicationFiles.of(config).write_properties(SessionProperties(secrets.application_id, given))
    print(f"Yarn application {secrets.application_id} ({secrets.name}) runs.")
    print(f"JobManager Web Interface: {secrets.rest_address}")
    print(f"`yarrow run` uses this session when none is named: {path}", flush=True)


def properties_of(config: Settings) -> dict[str, str]:
    """The command line's settings for the jobs of later commands, without secrets."""
    return {
        key: value
        for key, value in config.to_dict().items()
        if config.origin_of(key).startswith("-D") and key not in _OF_THE_START and not is_secret_key(key)
    }


def _print_how_to_stop(secrets: ClientSecrets) -> None:
    print("The session runs on without this command. To end it:")
    print(f'  echo "stop" | yarrow session -id {secrets.application_id}')
    print(f"or, where that fails: yarn application -kill {secrets.application_id}", flush=True)


def _attend(config: Settings, secrets: ClientSecrets, ends_with_us: bool) -> int:
    """Watches until `stop`, the session's end, or the end of this command."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=_read_lines, args=(lines,), name="stdin", daemon=True).start()
    what = "ends with this command" if ends_with_us else "outlives this command"
    say(f"The session {what}; `stop` ends it.")
    try:
        rest = rest_of(config, secrets)
        with _heartbeats(config, rest) if ends_with_us else contextlib.nullcontext():
            return _take_commands(config, secrets, rest, lines, ends_with_us)
    except KeyboardInterrupt:
        if ends_with_us:
            say("Interrupted: the session is ended.")
            end_session(config, secrets)
        else:
            say(f"Interrupted: {secrets.application_id} runs on.")
        return 130


def _take_commands(
    config: Settings, secrets: ClientSecrets, rest: RestClient, lines: queue.Queue[str], ends_with_us: bool
) -> int:
    clock, asks_yarn = SystemClock(), has_hadoop(config)
    answered = clock.monotonic()
    while True:
        try:
            line = lines.get(timeout=_LOOK)
        except queue.Empty:
            ended = None
            try:
                ended = end_of(config, secrets.application_id) if asks_yarn else None
            except ApplicationNotFoundError:
                # The cluster was set up anew: waiting would not help.
                raise
            except YarnError:
                # A restarting ResourceManager says nothing about the session.
                pass
            if ended is not None:
                return _report_end(config, ended)
            if asks_yarn or rest.answers():
                answered = clock.monotonic()
            elif clock.monotonic() - answered > _GRACE:
                raise CommandError(
                    f"{secrets.application_id} has not answered at {rest.address} for {_GRACE:g} s. Set"
                    " HADOOP_CONF_DIR, so that this command can ask YARN for its state."
                ) from None
            continue
        match line.strip().lower():
            case "stop" | "quit" | "q":
                report = end_session(config, secrets)
                print(f"{secrets.application_id} has ended{_status_of(report)}.", flush=True)
                return 0
            case "help":
                print(_HELP, flush=True)
            case "" if line == _END_OF_INPUT and not ends_with_us:
                say(f"The input has ended: {secrets.application_id} runs on.")
                return 0
            case "":
                pass
            case other:
                print(f"There is no command {other!r}. {_HELP}", flush=True)


def _report_end(config: Settings, report: ApplicationReport) -> int:
    ApplicationFiles.of(config).forget(report.application_id)
    print(end_text(report), flush=True)
    return 0 if report.final_status is FinalStatus.SUCCEEDED else 1


def _status_of(report: ApplicationReport | None) -> str:
    return "" if report is None else f" ({report.final_status.value})"


def _read_lines(lines: queue.Queue[str]) -> None:
    """Yields standard input's lines, then one empty text."""
    with contextlib.suppress(ValueError, OSError):
        for line in sys.stdin:
            lines.put(line)
    lines.put(_END_OF_INPUT)


@contextlib.contextmanager
def _heartbeats(config: Settings, rest: RestClient) -> Iterator[None]:
    """Sends the session heartbeats of its client while the block runs."""
    ended = threading.Event()
    interval = config.get(rpc.CLIENT_HEARTBEAT_INTERVAL).seconds

    def send() -> None:
        while not ended.is_set():
            # Whatever the obstacle is, YARN included: the session ends when heartbeats stop.
            with contextlib.suppress(YarrowError):
                rest.json("PATCH", "/cluster/clientHeartbeat")
            ended.wait(interval)

    thread = threading.Thread(target=send, name="heartbeats", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


@contextlib.contextmanager
def _interrupted_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command like Ctrl-C, so that its session does not stay behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
