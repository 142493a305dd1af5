"""What of Flink's REST API is not served, and why: the list may only become shorter."""

from __future__ import annotations

_PROFILER = "sampling of processes from outside is not built"
_RAW_COORDINATION = "carries serialized Java objects"

#: (path, method) and the reason.
PATHS: dict[tuple[str, str], str] = {
    ("/jobmanager/profiler", "get"): _PROFILER,
    ("/jobmanager/profiler", "post"): _PROFILER,
    ("/jobmanager/profiler/{filename}", "get"): _PROFILER,
    ("/taskmanagers/{taskmanagerid}/profiler", "get"): _PROFILER,
    ("/taskmanagers/{taskmanagerid}/profiler", "post"): _PROFILER,
    ("/taskmanagers/{taskmanagerid}/profiler/{filename}", "get"): _PROFILER,
    ("/jobs/{jobid}/vertices/{vertexid}/flamegraph", "get"): _PROFILER,
    ("/jobs/{jobid}/coordinators/{operatorUid}", "post"): _RAW_COORDINATION,
    ("/jobs/{jobid}/yarn-stop", "get"): "stopping takes a savepoint, and a GET changes nothing here",
    ("/datasets/delete/{triggerid}", "get"): "no cached results are kept, so none are deleted",
}

#: The number of entries above when the list was written last: it may only go down.
PATHS_AT_MOST = 10

#: (path, method): answers whose fields differ, because the path never answers so here.
NEVER_ANSWERED: dict[tuple[str, str], str] = {
    ("/datasets/{datasetid}", "delete"): "every id is unknown",
}

#: (path, method): query parameters of Flink that have no meaning here.
QUERY: dict[tuple[str, str], set[str]] = {
    ("/jobs/{jobid}/accumulators", "get"): {"includeSerializedValue"},
}

_BLOCKLIST = "there is no list of blocked nodes here, and Flink leaves the field out where nothing is blocked"

#: (path, method): fields of answers that are absent, and why. The list may only become shorter.
FIELDS: dict[tuple[str, str], dict[str, str]] = {
    ("/overview", "get"): {"taskmanagers-blocked": _BLOCKLIST, "slots-free-and-blocked": _BLOCKLIST},
    ("/taskmanagers", "get"): {"blocked": _BLOCKLIST},
    ("/taskmanagers/{taskmanagerid}", "get"): {"blocked": _BLOCKLIST},
}

#: The number of fields above when the list was written last.
FIELDS_AT_MOST = 4
