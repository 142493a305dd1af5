"""`run-application` and `run -t yarn-application`: the program goes to YARN as it is, its main() runs there.

Owner: the main thread. Nothing of the program is imported or executed here: its files are named, and that is all.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence

from yarrow.cli.applications import application_of, end_of, end_text, say
from yarrow.cli.errors import CommandError
from yarrow.cli.program import Program
from yarrow.cli.yarn_executor import print_how_to_end
from yarrow.cli.yarn_flags import YARN_APPLICATION
from yarrow.runtime.common.errors import JobCancelledError, JobExecutionError
from yarrow.runtime.config.options import execution, python, yarn
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.application import ProgramDescription
from yarrow.runtime.yarn.gateways import FinalStatus
from yarrow.runtime.yarn.layout import USER_FOLDER

_LOOK = 1.0


class ShippedProgram:
    """A program's local files, and the names that they have in a container."""

    def __init__(self) -> None:
        self._sources: dict[str, str] = {}

    def add(self, path: str) -> str:
        """The path in a container of what lies at `path` here (or on HDFS).

        Raises CommandError when there is no such file, or another one has its name already.
        """
        source = path if "://" in path else os.path.abspath(path)
        if "://" not in path and not os.path.exists(source):
            raise CommandError(f"There is no file {path!r}. Working directory: {os.getcwd()}")
        name = os.path.basename(source.rstrip("/"))
        known = self._sources.setdefault(name, source)
        if known != source:
            raise CommandError(
                f"{known} and {source} have the same name, {name!r}, and would lie in the same place of a container:"
                " rename one."
            )
        return f"{USER_FOLDER}/{name}"

    @property
    def sources(self) -> Sequence[str]:
        """What has to be shipped."""
        return tuple(self._sources.values())


def run_as_application(program: Program, config: Settings) -> None:
    """Deploys, and returns when its master runs; with execution.attached it waits for the application's end.

    Raises JobExecutionError with YARN's diagnostics when the application that it waited for failed.
    """
    from yarrow.runtime.yarn.cluster_descriptor import YarnClusterDescriptor

    if config.is_set(yarn.APPLICATION_ID):
        raise CommandError(
            f"-t {YARN_APPLICATION} starts an application of its own, but {yarn.APPLICATION_ID.key} names one that"
            " runs: leave it out."
        )
    attached = config.get(execution.ATTACHED)
    description, config = described(program, config)
    with YarnClusterDescriptor(config, say) as descriptor:
        cluster = descriptor.deploy_application(description, attached=attached)
    print(f"Yarn application {cluster.application_id} ({cluster.name}) runs.")
    print(f"JobManager Web Interface: {cluster.rest_address}", flush=True)
    if not attached:
        print_how_to_end(cluster.application_id)
        return
    _wait(config.overlay({yarn.APPLICATION_ID.key: cluster.application_id}))


def described(program: Program, config: Settings) -> tuple[ProgramDescription, Settings]:
    """What the container runs, and the configuration with the files that it needs, by their names there."""
    shipped = ShippedProgram()
    description = ProgramDescription(
        path="" if program.path is None else shipped.add(program.path),
        module=program.module or "",
        arguments=program.arguments,
        python_files=tuple(shipped.add(path) for path in program.python_files),
    )
    files = [shipped.add(path) for path in config.get(python.FILES) or ()]
    archives = [_renamed(shipped, entry) for entry in config.get(python.ARCHIVES) or ()]
    values: dict[str, object] = {}
    if files:
        values[python.FILES.key] = files
    if archives:
        values[python.ARCHIVES.key] = archives
    requirements = config.get(python.REQUIREMENTS)
    if requirements:
        file, mark, cache = requirements.partition("#")
        values[python.REQUIREMENTS.key] = f"{shipped.add(file)}{mark}{shipped.add(cache) if cache else ''}"
    ship = [*(config.get(yarn.SHIP_FILES) or ()), *shipped.sources]
    if ship:
        values[yarn.SHIP_FILES.key] = ship
    return description, config.overlay(values, "the program's files")


def _renamed(shipped: ShippedProgram, archive: str) -> str:
    """An archive by its name in a container; the folder it is unpacked to stays the same."""
    path, mark, folder = archive.partition("#")
    return f"{shipped.add(path)}{mark}{folder}"


def _wait(config: Settings) -> None:
    from yarrow.runtime.yarn.cluster_descriptor import YarnClusterDescriptor

    application, pause = application_of(config), threading.Event()
    try:
        while (report := end_of(config, application)) is None:
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
