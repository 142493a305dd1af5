"""What Spark's own application on YARN brings to its containers: Python, jars, and the tags by which it is found.

Owner: any thread; pure. The client writes the lists of files into the configuration, under Spark's own keys. The
SparkDriver reads from them which interpreter the executors have. No secret is among the files or tags.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from yarrow.runtime.common.paths import scheme_of
from yarrow.runtime.yarn.gateways import Resource
from yarrow.runtime.yarn.layout import ENVIRONMENT_FOLDER, START_FILE

#: Files and archives for each container of Spark, as `URL#name`, and its jars.
FILES: Final = "spark.yarn.dist.files"
ARCHIVES: Final = "spark.yarn.dist.archives"
JARS_ARCHIVE: Final = "spark.yarn.archive"
JARS: Final = "spark.yarn.jars"
#: Below the staging directory: files of Spark's applications that belong to no application of ours.
STAGING_FOLDER: Final = "spark"
#: The tag of each Spark application that belongs to a bounded job.
TAG: Final = "yarrow-spark"
#: Prefixes of the tags that name the job and its SparkDriver.
_JOB_TAG, _DRIVER_TAG = "yarrow-job-", "yarrow-"
_ARCHIVED_INTERPRETER: Final = f"{ENVIRONMENT_FOLDER}/bin/python3"


def tags_of(application_id: str, job_id: str, driver_id: str) -> tuple[str, ...]:
    """The tags of a Spark application; `application_id` is that of our own on YARN, "" = there is none."""
    own = (application_id,) if application_id else ()
    return (TAG, *own, f"{_JOB_TAG}{job_id}", driver_tag(driver_id))


def driver_tag(driver_id: str) -> str:
    """The tag that one Spark application alone has."""
    return f"{_DRIVER_TAG}{driver_id}".lower()


def shipped(values: Mapping[str, str], files: Sequence[Resource], jars: Sequence[Resource]) -> dict[str, str]:
    """The keys of Spark that bring these files, behind those which `values` name already; of those on HDFS alone.

    `jars` is the archive of Spark's jars; a program may name another one.
    """
    files = [file for file in files if scheme_of(file.source) == "hdfs"]
    plain = [_entry(file) for file in files if not file.is_archive]
    archives = [_entry(file) for file in files if file.is_archive]
    found = {key: ",".join(named) for key, named in ((FILES, plain), (ARCHIVES, archives)) if named}
    found = {
        key: f"{values[key]},{text}" if values.get(key) else text
        for key, text in found.items()
        if text not in values.get(key, "")
    }
    if jars and not {JARS_ARCHIVE, JARS} & set(values):
        found[JARS_ARCHIVE] = jars[0].source
    return found


def interpreter_of(values: Mapping[str, str], own: str) -> str:
    """The interpreter of Spark's executors; `own` where the nodes have it."""
    if START_FILE in _names(values.get(FILES, "")):
        return f"./{START_FILE}"
    if ENVIRONMENT_FOLDER in _names(values.get(ARCHIVES, "")):
        return _ARCHIVED_INTERPRETER
    return own


def brings_python(values: Mapping[str, str]) -> bool:
    """Whether the executors get an environment of ours."""
    return interpreter_of(values, "") != ""


def _entry(file: Resource) -> str:
    return f"{file.source}#{file.target}"


def _names(listed: str) -> list[str]:
    return [entry.rpartition("#")[2].strip() for entry in listed.split(",") if "#" in entry]
