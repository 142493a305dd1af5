"""Paths by which clients submit: JobGraphs and the payloads that belong to them.

Owner: the event loop of the REST server. Payloads are opaque, except for the JobGraph's own structure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

import msgspec
from fastapi import Request
from pydantic import ValidationError
from starlette.datastructures import FormData, UploadFile

from yarrow.am.rest.errors import BadRequestError
from yarrow.am.rest.models.cluster import StoredBlob
from yarrow.am.rest.models.jobs import JobSubmission, JobSubmissionRequest
from yarrow.am.rest.routes.cluster_access import Access, ClusterAccess, refusals
from yarrow.am.rest.routes.flink_router import flink_router
from yarrow.runtime.graph.job_graph import JobGraph, ShippedFile, decode_job_graph

router = flink_router("Submission")

R = TypeVar("R", bound=JobSubmissionRequest)
#: Most parts of one submission.
MOST_PARTS = 1000

#: The form of a submission, for the document of the API.
FORM = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["request"],
                    "properties": {
                        "request": {
                            "type": "string",
                            "description": "JSON: executionPlanFileName (or jobGraphFileName) names the part"
                            " with the encoded JobGraph, jobArtifactFileNames the parts with its files.",
                        }
                    },
                    "additionalProperties": {"type": "string", "format": "binary"},
                }
            }
        },
    }
}


@router.post("/jobs", status_code=202, responses=refusals(400, 403, 408, 409, 413), openapi_extra=FORM)
async def submit_job(access: Access, request: Request) -> JobSubmission:
    """Submits a JobGraph. Files that it ships without a blob key come as artifacts under their names in it."""
    form = await request.form(max_files=MOST_PARTS, max_fields=MOST_PARTS)
    try:
        graph = await graph_of(access, form, request_of(form, JobSubmissionRequest))
    finally:
        await form.close()
    job_id = await access.services.submit(graph)
    return JobSubmission(job_url=f"/jobs/{job_id}")


async def graph_of(access: ClusterAccess, form: FormData, asked: JobSubmissionRequest) -> JobGraph:
    """The JobGraph of a submission; its files have been stored."""
    files = _files(form)
    return await _with_artifacts(access, await _job_graph(asked, files), asked, files)


def request_of(form: FormData, kind: type[R]) -> R:
    """The part `request` of a submission. Raises BadRequestError with the part that is wrong."""
    text = form.get("request")
    if not isinstance(text, str):
        raise BadRequestError(
            "the part 'request' is missing: send it as JSON with the names of the other parts"
        )
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(name) for name in first["loc"])
        raise BadRequestError(f"the part 'request': {where} {first['msg']}".rstrip()) from None


def _files(form: FormData) -> dict[str, UploadFile]:
    """Uploaded parts by their file names, and by their part names if these are free."""
    uploads = [(name, value) for name, value in form.multi_items() if isinstance(value, UploadFile)]
    by_part = dict(uploads)
    return by_part | {value.filename: value for _, value in uploads if value.filename}


async def _job_graph(asked: JobSubmissionRequest, files: Mapping[str, UploadFile]) -> JobGraph:
    name = asked.execution_plan_file_name or asked.job_graph_file_name
    if name is None:
        raise BadRequestError(
            "the part 'request' has no executionPlanFileName: name the part with the JobGraph there"
        )
    try:
        return decode_job_graph(await _part(files, name).read())
    except msgspec.DecodeError as error:
        raise BadRequestError(
            f"the part {name!r} is no JobGraph of this version of Yarrow: {error}. Run the same version on "
            "client and cluster"
        ) from None


def _part(files: Mapping[str, UploadFile], name: str) -> UploadFile:
    if name not in files:
        there = ", ".join(sorted(files)) or "none"
        raise BadRequestError(
            f"the request names the file {name!r}, which was not sent; the request has: {there}"
        )
    return files[name]


async def _with_artifacts(
    access: ClusterAccess, graph: JobGraph, asked: JobSubmissionRequest, files: Mapping[str, UploadFile]
) -> JobGraph:
    artifacts = {artifact.entry_name: artifact.file_name for artifact in asked.job_artifact_file_names}
    unknown = artifacts.keys() - {file.name for file in graph.user_code.files if not file.blob_key}
    if unknown:
        raise BadRequestError(
            f"the JobGraph waits for no file named {', '.join(sorted(unknown))}: an artifact's entryName is the"
            " name of a shipped file without a blob key"
        )
    shipped: list[ShippedFile] = []
    for file in graph.user_code.files:
        if not file.blob_key:
            if file.name not in artifacts:
                raise BadRequestError(
                    f"the JobGraph ships {file.name!r} without a blob key: send the file as an artifact, "
                    "or POST it to /blobs before"
                )
            data = await _part(files, artifacts[file.name]).read()
            file = msgspec.structs.replace(file, blob_key=await access.services.put_blob(data))
        shipped.append(file)
    code = msgspec.structs.replace(graph.user_code, files=tuple(shipped))
    return msgspec.structs.replace(graph, user_code=code)


_BINARY = {
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    }
}


@router.post("/blobs", status_code=201, responses=refusals(400, 403, 408, 413), openapi_extra=_BINARY)
async def store_blob(access: Access, request: Request) -> StoredBlob:
    """Stores a payload that a JobGraph refers to. Yarrow's."""
    return StoredBlob(key=await access.services.put_blob(await request.body()))
