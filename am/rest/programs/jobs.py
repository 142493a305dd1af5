"""Turns a request for a stored program into a plan, or into submitted jobs.

Owner: the event loop of the REST server.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

import yarrow.runtime.config.options.execution as execution_options
import yarrow.runtime.config.options.pipeline as pipeline_options
from yarrow.am.checkpoint.targets import checked_path
from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.programs import ProgramArguments, ProgramRun
from yarrow.am.rest.programs.messages import JobHandedOver, ProgramFileToShip, ProgramRequest
from yarrow.am.rest.programs.process import TakeJob, run_program
from yarrow.am.rest.programs.store import StoredProgram
from yarrow.am.rest.services import RestServices, RestSettings
from yarrow.runtime.common.ids import JobID
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.config.validation import validate
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile, decode_job_graph


@dataclass(frozen=True, slots=True)
class ProgramJobs:
    """Runs programs for one REST server."""

    services: RestServices
    settings: RestSettings

    async def plan(self, program: StoredProgram, arguments: ProgramArguments) -> JobGraph:
        """The JobGraph of the program's first execute; nothing is submitted or stored."""
        graphs: list[JobGraph] = []

        async def take(job: JobHandedOver) -> None:
            graphs.append(decode_job_graph(job.job_graph))

        await self._run(program, arguments, take_plan_only=True, take=take)
        return _with_job_id(graphs[0], arguments.job_id)

    async def submit(self, program: StoredProgram, arguments: ProgramRun) -> list[JobID]:
        """Submits every job that main executed, after main has returned; their ids in order."""
        if arguments.savepoint_path:
            checked_path(arguments.savepoint_path, "savepointPath")
        graphs: list[JobGraph] = []

        async def take(job: JobHandedOver) -> None:
            graph = decode_job_graph(job.job_graph)
            files = [await self._ship(file) for file in job.files]
            graphs.append(_with_files(graph, (*graph.user_code.files, *files)))

        await self._run(program, arguments, take_plan_only=False, take=take)
        graphs[0] = _with_job_id(graphs[0], arguments.job_id)
        return [await self.services.submit(graph) for graph in graphs]

    async def _run(
        self, program: StoredProgram, arguments: ProgramArguments, *, take_plan_only: bool, take: TakeJob
    ) -> None:
        request = ProgramRequest(
            path=str(program.path),
            name=program.name,
            entry=_entry(program, arguments.entry_class or ""),
            arguments=_arguments(arguments),
            configuration=self._configuration(arguments),
            plan_only=take_plan_only,
        )
        directory = self.settings.temporary_directory
        await run_program(request, take, self.settings.program_timeout, directory)

    def _configuration(self, arguments: ProgramArguments) -> dict[str, str]:
        """The settings with which the program's environments begin.

        They are the cluster's parallelism, then the request's settings.
        """
        option = pipeline_options.DEFAULT_PARALLELISM
        values: dict[str, object] = {}
        if self.services.settings.is_set(option):
            values[option.key] = option.type.render(self.services.settings.get(option))
        settings = Settings(values).overlay(arguments.flink_configuration or {}, "flinkConfiguration")
        if isinstance(arguments, ProgramRun):
            settings = settings.overlay(_recovery(arguments), "the request")
        validate(settings)
        if arguments.parallelism is not None:
            settings = settings.overlay({option.key: arguments.parallelism}, "parallelism")
        return settings.to_dict(redact=False)

    async def _ship(self, file: ProgramFileToShip) -> ShippedFile:
        try:
            data = await asyncio.to_thread(Path(file.path).read_bytes)
        except OSError as error:
            raise BadRequestError(f"the program ships {file.name!r}, which cannot be read: {error}") from None
        key = await self.services.put_blob(data)
        return ShippedFile(
            name=file.name,
            kind=file.kind,
            blob_key=key,
            target=file.target,
            is_folder=file.is_folder,
            executable=file.executable,
        )


def _entry(program: StoredProgram, entry: str) -> str:
    module, _, function = entry.partition(":")
    names = [*module.split("."), *([function] if ":" in entry else [])]
    if entry and not all(name.isidentifier() for name in names):
        raise BadRequestError(
            f"{entry!r} is no entry: expected a module of the program (package.module) or module:function"
        )
    if entry and not program.is_archive and names[0] != program.name.removesuffix(".py"):
        raise BadRequestError(
            f"{program.name} is a single file: its only module is {program.name.removesuffix('.py')!r},"
            f" not {module!r}; leave the entry out, or name a function of it"
        )
    return entry


def _arguments(arguments: ProgramArguments) -> tuple[str, ...]:
    if arguments.program_args_list is not None:
        return tuple(arguments.program_args_list)
    try:
        return tuple(shlex.split(arguments.program_args or ""))
    except ValueError as error:
        raise BadRequestError(
            f"programArgs cannot be split as a shell does ({error}): use programArgsList"
        ) from None


def _recovery(arguments: ProgramRun) -> dict[str, object]:
    """The request's settings of the snapshot to restore."""
    values: dict[str, object] = {
        execution_options.SAVEPOINT_PATH.key: arguments.savepoint_path or None,
        execution_options.IGNORE_UNCLAIMED_STATE.key: arguments.allow_non_restored_state,
        execution_options.CLAIM_MODE.key: arguments.claim_mode or arguments.restore_mode,
    }
    return {key: value for key, value in values.items() if value is not None}


def _with_files(graph: JobGraph, files: Sequence[ShippedFile]) -> JobGraph:
    code = msgspec.structs.replace(graph.user_code, files=tuple(files))
    return msgspec.structs.replace(graph, user_code=code)


def _with_job_id(graph: JobGraph, job_id: str | None) -> JobGraph:
    if job_id is None:
        return graph
    wanted = JobID(job_id.lower())
    return msgspec.structs.replace(graph, job_id=wanted, plan={**graph.plan, "jid": wanted})
