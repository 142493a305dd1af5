"""Finds the application on YARN that a command means, and its REST. Asks YARN only when needed.

Owner: any thread, blocking. A session with a known address that answers is reached without YARN and without a
JVM.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from yarrow.client.errors import CommandError
from yarrow.client.rest.rest_client import RestClient
from yarrow.client.yarn.application_files import ApplicationFiles
from yarrow.runtime.config.options import yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ClientSecrets

if TYPE_CHECKING:
    from yarrow.runtime.yarn.gateways import ApplicationReport, YarnError

#: For questions to YARN alone: no application is contacted.
NO_PAIR: Final = (b"", b"")


def application_of(config: Settings) -> ClientSecrets:
    """The application of yarn.application.id, by id or name, else the session of the properties file.

    Raises CommandError if none is named, or this user has no secrets of it.
    """
    files = ApplicationFiles.of(config)
    named = config.get(yarn.APPLICATION_ID)
    if named is None:
        session = files.read_properties()
        if session is None:
            raise CommandError(
                "No application is named. Give its id or name (-yid; the argument of `yarrow token` and"
                f" `yarrow proxy`; -D{yarn.APPLICATION_ID.key}). Or start a session with `yarrow session`,"
                f" which writes {files.properties_path}."
            )
        named = session.application_id
    if not named.startswith("application_"):
        return _by_name(config, files, named)
    secrets = files.read_secrets(named)
    if secrets is None:
        raise CommandError(_without_secrets(config, files, named))
    return secrets


def rest_of(config: Settings, application: ClientSecrets) -> RestClient:
    """A REST client of an application, not connected yet; it finds a master that has moved."""

    def locate() -> str:
        return present_address(config, application)

    parts = urlsplit(application.rest_address or locate())
    if parts.hostname is None or parts.port is None:
        raise CommandError(
            f"{application.application_id} has published {application.rest_address!r}, which is no address of REST."
        )
    return RestClient.of(
        config,
        parts.hostname,
        parts.port,
        token=application.rest_token,
        locate=locate,
        remedy=f"See `yarn application -status {application.application_id}`.",
        result_key=application.result_key,
    )


def present_address(config: Settings, application: ClientSecrets) -> str:
    """The present REST address of the application, which is kept for the next command.

    Raises CommandError for an ended application, with its end and, if the properties file names it, what to
    do.
    """
    from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor
    from yarrow.runtime.yarn.gateways import ApplicationNotFoundError

    with YarnClusterDescriptor(config, say) as descriptor:
        try:
            report = descriptor.client(NO_PAIR).report(application.application_id)
        except ApplicationNotFoundError as error:
            raise CommandError(
                _unknown(config, descriptor.files, application.application_id, error)
            ) from None
        if report.state.has_ended:
            raise CommandError(
                f"{end_sentence(report)} {_remedy(descriptor.files, application.application_id)}"
            )
        return descriptor.retrieve(application.application_id).rest_address


def end_of(config: Settings, application_id: str) -> ApplicationReport | None:
    """YARN's report of an ended application; None = it has not ended."""
    from yarrow.client.yarn.cluster_descriptor import YarnClusterDescriptor

    with YarnClusterDescriptor(config, say) as descriptor:
        report = descriptor.client(NO_PAIR).report(application_id)
        return report if report.state.has_ended else None


def end_text(report: ApplicationReport) -> str:
    """The end of an application with all that YARN says, for a client that waited for it."""
    return _ended(report, report.diagnostics.strip())


def end_sentence(report: ApplicationReport) -> str:
    """The end of an application on one line, for a client that wanted to use it."""
    from yarrow.runtime.yarn.failures import summary

    said = summary(report.diagnostics)
    return _ended(report, said if said.endswith(".") or not said else f"{said}.")


def _ended(report: ApplicationReport, said: str) -> str:
    how = f"{report.application_id} ({report.name}) has ended: {report.final_status.value}"
    return f"{how}. YARN says: {said}" if said else f"{how}."


def say(text: str) -> None:
    """Prints a progress line for people."""
    print(text, file=sys.stderr, flush=True)


def _remedy(files: ApplicationFiles, application_id: str) -> str:
    session = files.read_properties()
    if session is None or session.application_id != application_id:
        return "Name another with -yid."
    return (
        f"{files.properties_path} names it for commands that name no application. Start another with"
        " `yarrow session`, which replaces the file. Or remove the file, or say with -t or -m where to"
        " run."
    )


def _by_name(config: Settings, files: ApplicationFiles, name: str) -> ClientSecrets:
    from yarrow.runtime.yarn.gateways import YarnError

    known: list[ClientSecrets] = []
    unread: YarnError | None = None
    for application_id in files.known_applications():
        try:
            secrets = files.read_secrets(application_id)
        except YarnError as error:
            unread = error
        else:
            known += [] if secrets is None else [secrets]
    found = [secrets for secrets in known if secrets.name == name]
    if not found and unread is not None:
        # It may be the one.
        raise unread
    if len(found) > 1:
        found = _not_ended(config, found) or found
    if len(found) == 1:
        return found[0]
    raise CommandError(_which(files, name, found or known))


def _without_secrets(config: Settings, files: ApplicationFiles, application_id: str) -> str:
    """The text about an application without secrets here: they were removed at its end, or never existed."""
    from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, YarnError

    none = f"There are no secrets of {application_id} in {files.folder}"
    ended = None
    try:
        ended = end_of(config, application_id)
    except ApplicationNotFoundError as error:
        return f"{none}, and {_unknown(config, files, application_id, error)}"
    except YarnError:
        # No Hadoop is configured, or YARN does not answer.
        pass
    if ended is not None:
        return f"{end_sentence(ended)} {_remedy(files, application_id)}"
    return (
        f"{none}: it is no application of yours, or it was started on another machine or with another"
        f" {yarn.PROPERTIES_FILE_LOCATION.key}. Copy its file .yarrow-application-* from there, with mode"
        " 0600."
    )


def _unknown(config: Settings, files: ApplicationFiles, application_id: str, error: YarnError) -> str:
    """The text about an application that YARN does not know: its cluster is another one, or was set up anew."""
    from yarrow.runtime.yarn.hadoop_configuration import HadoopConfiguration

    hadoop = HadoopConfiguration.load(config)
    asked = f"The YARN of {hadoop.folder} ({hadoop.origin}) was asked."
    return f"{error} {asked} {_remedy(files, application_id)}"


def _not_ended(config: Settings, applications: Sequence[ClientSecrets]) -> list[ClientSecrets]:
    """Applications that may still run.

    One that was killed by other means left its secrets here, and its name may be used again.
    """
    from yarrow.runtime.yarn.gateways import ApplicationNotFoundError, YarnError

    left = []
    for application in applications:
        try:
            if end_of(config, application.application_id) is None:
                left.append(application)
        except ApplicationNotFoundError:
            continue
        except YarnError:
            # No Hadoop is named, or YARN does not answer.
            left.append(application)
    return left


def _which(files: ApplicationFiles, name: str, there_are: Sequence[ClientSecrets]) -> str:
    several = all(secrets.name == name for secrets in there_are) and there_are
    shown = ", ".join(f"{secrets.application_id} ({secrets.name})" for secrets in there_are)
    if several:
        return f"Several applications are called {name!r}: name one by its id: {shown}."
    return f"No application is called {name!r}; those with secrets in {files.folder}: {shown or 'none'}."
