"""YarnApplication: the application of a driver's Spark on YARN, as Java's YARN client and the ResourceManager show it.

Owner: any thread of the driver; each call blocks. The application is known by a tag that it alone has, since Spark
tells its id only when YARN runs it. Must not decide what its end costs the job.
"""

from __future__ import annotations

import contextlib
import logging
import threading
from typing import Any, Final

from pyspark import SparkContext

from yarrow.container.batch.spark.yarn_settings import SparkOnYarn
from yarrow.runtime.common.errors import YarrowError
from yarrow.runtime.config.settings import Settings
from yarrow.runtime.yarn.gateways import ContainerShape
from yarrow.runtime.yarn.spark_executor_shape import executor_shape
from yarrow.runtime.yarn.waiting_containers import ContainerExplainer, ShapeKeys

_log = logging.getLogger(__name__)
_EXECUTOR_KEYS: Final = ShapeKeys("spark.executor.memory", "spark.executor.cores")
_MASTER_KEYS: Final = ShapeKeys("spark.yarn.am.memory", "spark.yarn.am.cores")
#: Spark's defaults of its ApplicationMaster: heap and the least memory beside it, in MiB.
_MASTER_SHAPE: Final = ContainerShape(512 + 384, 1, "")
#: Seconds between two looks whether an executor has come.
_LOOK: Final = 0.2
_RUNNING: Final = "RUNNING"
#: Spark's name of its driver, in lists of executors.
_DRIVER: Final = "driver"
_ENDED: Final = ("FINISHED", "FAILED", "KILLED")


class YarnApplication:
    """The application of one driver."""

    def __init__(self, jvm: Any, config: Settings, spark: SparkOnYarn) -> None:
        self._jvm = jvm
        self._config = config
        self._tag = spark.tags[-1]
        self._shape = executor_shape(config).container
        self._client: Any = None
        self._lock = threading.Lock()
        self._explain: dict[str, ContainerExplainer] = {}
        #: An executor has come, once.
        self._has_executors = False

    def await_executors(self, context: SparkContext, closing: threading.Event) -> None:
        """Returns when the first executor has come, the application is gone, or `closing` is set."""
        while not closing.is_set() and not context._jsc.sc().isStopped():
            if _an_executor_has_come(context):
                self._has_executors = True
                return
            closing.wait(_LOOK)

    def end_of(self, context: SparkContext) -> str:
        """How it has ended under its driver; "" = it has not."""
        if not context._jsc.sc().isStopped():
            return ""
        text = f"Spark's application {context.applicationId} on YARN has ended under its driver"
        with contextlib.suppress(Exception):  # The ResourceManager may not answer; the end is known.
            report = self._report()
            if report is not None:
                said = str(report.getDiagnostics() or "").strip()
                text += f": {report.getYarnApplicationState()}" + (f". {said}" if said else "")
        return text

    def waits_for(self) -> str:
        """What YARN has not granted yet; "" = nothing, or the application is not submitted yet."""
        if self._has_executors:
            return ""
        try:
            report = self._report()
        except Exception as error:
            _log.info("the ResourceManager of YARN does not tell of Spark's application: %r", error)
            return ""
        if report is None or str(report.getYarnApplicationState()) in _ENDED:
            return ""
        name = str(report.getApplicationId())
        granted = int(report.getApplicationResourceUsageReport().getNumUsedContainers())
        if str(report.getYarnApplicationState()) != _RUNNING:
            if granted > 0:
                # Spark's ApplicationMaster has its container, and starts.
                return ""
            said = " ".join(str(report.getDiagnostics() or "").split())
            why = said or self._reason(name, _MASTER_SHAPE, _MASTER_KEYS)
            return f"YARN has not started Spark's application {name} yet; {why}"
        if granted > 1:
            # An executor has its container, and starts.
            return ""
        shape = self._shape
        why = self._reason(name, shape, _EXECUTOR_KEYS)
        wanted = f"{shape.memory_mb} MB and {shape.vcores} cores"
        return f"YARN has granted Spark's application {name} no executor of {wanted} yet; {why}"

    def kill(self) -> None:
        """Has YARN kill it, if it has not ended; what fails is told in the log."""
        try:
            report = self._report()
            if report is not None and str(report.getYarnApplicationState()) not in _ENDED:
                self._connected().killApplication(report.getApplicationId())
                _log.info("YARN has killed Spark's application %s", report.getApplicationId())
        except Exception as error:
            _log.warning("Spark's application with the tag %s on YARN was not killed: %s", self._tag, error)

    def _report(self) -> Any:
        """YARN's report; None = it knows no such application."""
        request = self._jvm.org.apache.hadoop.yarn.api.protocolrecords.GetApplicationsRequest.newInstance()
        tags = self._jvm.java.util.HashSet()
        tags.add(self._tag)
        request.setApplicationTags(tags)
        found = self._connected().getApplications(request)
        return found[0] if len(found) else None

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                client = self._jvm.org.apache.hadoop.yarn.client.api.YarnClient.createYarnClient()
                client.init(self._jvm.org.apache.hadoop.yarn.conf.YarnConfiguration())
                client.start()
                self._client = client
            return self._client

    def _reason(self, name: str, shape: ContainerShape, keys: ShapeKeys) -> str:
        explain = self._explain.setdefault(keys.memory, ContainerExplainer(self._config, name, keys))
        try:
            return explain(shape, 1) or "YARN gives no reason"
        except YarrowError as error:
            return f"the ResourceManager of YARN cannot be asked for the reason: {error}"


def _an_executor_has_come(context: SparkContext) -> bool:
    """Whether an executor has registered, once. It may be gone: dynamic allocation ends those that are idle."""
    executors = context._jsc.sc().statusStore().executorList(False)
    # The driver counts as one in Spark's list.
    return any(executors.apply(place).id() != _DRIVER for place in range(executors.size()))
