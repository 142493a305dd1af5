"""SparkPaths: which of Spark's own paths REST passes on, and what its answers look like below a job. Pure.

Owner: none. A path from a request names a page of Spark's and nothing else: it is no file name, and it reaches no other
host. Whatever changes something, or costs the driver much, is refused.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote, urlsplit

from yarrow.am.rest.errors import BadRequestError, NotFoundError

#: Spark's pages by their first segment; "" is the first page, which leads on to that of jobs.
_PAGES: Final = frozenset(
    {"", "jobs", "stages", "storage", "environment", "executors", "SQL", "static", "api"}
)
#: The JSON that the pages themselves read.
_API: Final = ("api", "v1", "applications")
#: Segments that end jobs, look into the driver's threads and heap, or read files.
_REFUSED: Final = frozenset({"kill", "threadDump", "heapHistogram", "threads", "logs"})
#: The Content-Security-Policy of every page; that of Spark's own comes on top, and can only forbid more. A SparkDriver
#: must not loosen it. The pages of an older Spark have scripts in their HTML.
PAGE_POLICY: Final = (
    "default-src 'self'; script-src 'self' 'unsafe-inline'; style-src 'self' 'unsafe-inline'; img-src 'self' data:;"
    " object-src 'none'; base-uri 'self'; form-action 'self'; frame-ancestors 'self'"
)
_SEGMENT: Final = re.compile(r"[A-Za-z0-9_~-][A-Za-z0-9._~-]*")
_QUERY: Final = re.compile(r"[!-~]*")
_IN_LOCATION: Final = "/?%:@!$&'()*+,;=~"
_LONGEST_PATH, _LONGEST_QUERY = 1024, 8192


def spark_path(asked: str) -> str:
    """The path at Spark's own server for the part of a request's path behind `/jobs/JOB/spark/`.

    Raises NotFoundError for what is no page of Spark's, or none that REST passes on.
    """
    segments = asked.split("/")
    if segments[-1] == "":
        segments.pop()
    known = len(asked) <= _LONGEST_PATH and all(_SEGMENT.fullmatch(segment) for segment in segments)
    first = segments[0] if segments else ""
    if not known or first not in _PAGES or not _REFUSED.isdisjoint(segments):
        raise NotFoundError(
            f"Spark has no page {asked[:200]!r} that REST shows: begin with /jobs/<job id>/spark/jobs/"
        )
    if first == "api" and tuple(segments[:3]) != _API:
        raise NotFoundError(f"of Spark's own REST API, only paths below {'/'.join(_API)} are passed on")
    return f"/{asked}"


def spark_query(asked: str) -> str:
    """The query of a request as it was sent. Raises BadRequestError for one that no page of Spark's sends."""
    if len(asked) > _LONGEST_QUERY or not _QUERY.fullmatch(asked):
        raise BadRequestError(
            f"the query of a page of Spark's has at most {_LONGEST_QUERY} printable ASCII characters"
        )
    return asked


def redirected(location: str, base: str, asked: str) -> str:
    """Where a redirection of Spark's leads below a job, relative to the path of the request. Hosts count nothing.

    `base` is the path of the job's pages for browsers, and `asked` what the request's path has behind it. YARN's proxy
    follows redirections itself, and asks without what it has put before the path.
    """
    parts = urlsplit(location)
    path = parts.path if parts.path.startswith("/") else f"/{parts.path}"
    if path == base or path.startswith(f"{base}/"):
        path = path.removeprefix(base)
    # The request's path without a slash at its end is that of a file beside the pages.
    to_base = "../" * (asked.count("/") - 1) or "./" if asked else f"./{base.rpartition('/')[2]}/"
    path = to_base + path.lstrip("/")
    # A header has Latin-1 alone; what is escaped already stays so.
    return quote(f"{path}?{parts.query}" if parts.query else path, safe=_IN_LOCATION)
