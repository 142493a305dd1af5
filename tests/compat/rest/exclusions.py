"""What of Flink's REST API is not served, and why: the list may only become shorter."""

from __future__ import annotations

_APPLICATIONS = "an application is one of its jobs here: /jobs has them"
_PROFILER = "sampling of processes from outside is not built"
_RAW_COORDINATION = "carries serialized Java objects"

#: (path, method) and the reason.
PATHS: dict[tuple[str, str], str] = {
    ("/applications/overview", "get"): _APPLICATIONS,
    ("/applications/{applicationid}", "get"): _APPLICATIONS,
    ("/applications/{applicationid}/cancel", "post"): _APPLICATIONS,
    ("/applications/{applicationid}/exceptions", "get"): _APPLICATIONS,
    ("/applications/{applicationid}/jobmanager/config", "get"): _APPLICATIONS,
    ("/jars/{jarid}/run-application", "post"): _APPLICATIONS,
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
PATHS_AT_MOST = 16

#: (path, method): answers whose fields differ, because the path never answers so here.
NEVER_ANSWERED: dict[tuple[str, str], str] = {
    ("/datasets/{datasetid}", "delete"): "every id is unknown",
}

#: (path, method): query parameters of Flink that have no meaning here.
QUERY: dict[tuple[str, str], set[str]] = {
    ("/jobs/{jobid}/accumulators", "get"): {"includeSerializedValue"},
    ("/jobs/{jobid}/exceptions", "get"): {"failureLabelFilter"},
}
