"""ProcessWatch: memory and load of supervisor, template and workers, read from /proc.

Owner: the TaskExecutor has `sample` called in a thread about every second, one call at a time. Must not end a process:
it names the largest, and YARN or the user decides.

The kernel walks all pages of a process to tell its PSS, and keeps the process from mapping memory meanwhile. So PSS is
read as seldom as the measured time of the last reads asks. In between, the growth of resident memory is added to it.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from yarrow.runtime.common.clock import Clock
from yarrow.runtime.metrics import garbage_time

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
#: The most of the time that may pass in reads of PSS.
_SHARE = 0.01
_log = logging.getLogger(__name__)


class ProcessSample(msgspec.Struct, frozen=True):
    """The numbers of one process at one moment."""

    name: str
    pid: int
    #: Proportional set size in bytes: pages shared by n processes count 1/n for each.
    pss: int
    #: The part of `pss`, in bytes, that is mapped from files: code and libraries.
    mapped: int
    cpu_seconds: float
    threads: int
    descriptors: int


class MemoryReading(msgspec.Struct, frozen=True):
    """The memory of one process when it was read in full, in bytes; `pss` and `mapped` as in ProcessSample."""

    pss: int
    mapped: int
    #: Pages shared with others count in full.
    resident: int

    def grown_to(self, resident: int) -> int:
        """The PSS of the process now that so much is resident, as if the difference were its own."""
        return max(0, self.pss + resident - self.resident)


#: Reads the memory of a process below a /proc in full; None = the process is gone.
ReadMemory = Callable[[int, Path], MemoryReading | None]


def read_pss(pid: int, proc: Path = Path("/proc")) -> int | None:
    """PSS in bytes; None when the process is gone."""
    reading = read_memory(pid, proc)
    return None if reading is None else reading.pss


def read_memory(pid: int, proc: Path = Path("/proc")) -> MemoryReading | None:
    """A full reading, whose time grows with the memory; None when the process is gone."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text()
        resident = _resident(pid, proc)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    lines = (line.split() for line in text.splitlines())
    sizes = {line[0][:-1]: int(line[1]) * 1024 for line in lines if len(line) == 3 and line[2] == "kB"}
    if "Pss" not in sizes:
        return None
    # Kernels before 5.10 do not report the part that is mapped from files.
    return MemoryReading(sizes["Pss"], sizes.get("Pss_File", 0), resident)


def _resident(pid: int, proc: Path) -> int:
    """Resident bytes, from a counter that the kernel keeps. Raises OSError when the process is gone."""
    return int((proc / str(pid) / "statm").read_text().split()[1]) * _PAGE


def sample_process(
    name: str, pid: int, memory: MemoryReading, proc: Path = Path("/proc")
) -> ProcessSample | None:
    """All numbers of a process with this earlier reading of its memory; None when it is gone."""
    folder = proc / str(pid)
    try:
        pss = memory.grown_to(_resident(pid, proc))
        # The second field is the name in brackets, which may contain anything: count from its end.
        fields = (folder / "stat").read_text().rpartition(")")[2].split()
        descriptors = len(os.listdir(folder / "fd"))
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return ProcessSample(
        name=name,
        pid=pid,
        pss=pss,
        mapped=memory.mapped,
        cpu_seconds=(int(fields[11]) + int(fields[12])) / _TICKS,
        threads=int(fields[17]),
        descriptors=descriptors,
    )


class ProcessWatch:
    """Sums the use of a TaskExecutor's processes, and warns before the container is killed for it."""

    def __init__(
        self,
        budget: int,
        clock: Clock,
        threshold: float = 0.9,
        proc: Path = Path("/proc"),
        read: ReadMemory = read_memory,
    ) -> None:
        """Watches the memory of processes.

        `budget` is taskmanager.memory.process.size in bytes. Above the part `threshold` of it, a warning
        names the largest process.
        """
        self._budget = budget
        self._threshold = threshold
        self._clock = clock
        self._proc = proc
        self._read = read
        #: The last full reading of each process, by its name and pid.
        self._readings: dict[tuple[str, int], MemoryReading] = {}
        #: When all processes are read in full again.
        self._due = clock.monotonic()
        self._samples: tuple[ProcessSample, ...] = ()
        self._sampled_at = clock.monotonic()
        self._load = 0.0
        self._warned = False

    @property
    def samples(self) -> tuple[ProcessSample, ...]:
        """The samples of the last round."""
        return self._samples

    @property
    def used(self) -> int:
        """Sum of PSS in bytes at the last round."""
        return sum(sample.pss for sample in self._samples)

    def shortage(self, processes: Iterable[tuple[str, int]]) -> str:
        """Explains a forced end from outside by a lack of memory; "" if there was none."""
        now = sum(read_pss(pid, self._proc) or 0 for _, pid in processes)
        used = max(now, self.used)
        if used <= self._threshold * self._budget:
            return ""
        return (
            f"the processes of the TaskExecutor used {used >> 20} MB and may use {self._budget >> 20} MB: a"
            " node that checks memory kills them. Raise taskmanager.memory.process.size (-ytm), or lower"
            " taskmanager.numberOfTaskSlots"
        )

    def sample(self, processes: Iterable[tuple[str, int]]) -> None:
        """Samples these (name, pid) pairs. Reads memory in full where it is due, and of new processes."""
        before = {sample.pid: sample.cpu_seconds for sample in self._samples}
        now = self._clock.monotonic()
        self._read_memory(tuple(processes), now)
        read = (
            sample_process(name, pid, memory, self._proc) for (name, pid), memory in self._readings.items()
        )
        self._samples = tuple(sample for sample in read if sample is not None)
        burnt = sum(
            max(0.0, sample.cpu_seconds - before.get(sample.pid, sample.cpu_seconds))
            for sample in self._samples
        )
        elapsed = now - self._sampled_at
        self._load = burnt / elapsed / (os.cpu_count() or 1) if elapsed > 0 else 0.0
        self._sampled_at = now
        self._warn()

    def _read_memory(self, processes: Sequence[tuple[str, int]], now: float) -> None:
        """Keeps a reading of each process; the time of new ones puts off the next readings of all."""
        known = self._readings
        if now >= self._due:
            known, self._due = {}, now
        self._readings = {}
        began = self._clock.monotonic()
        for process in processes:
            reading = known.get(process) or self._read(process[1], self._proc)
            if reading is not None:
                self._readings[process] = reading
        self._due += (self._clock.monotonic() - began) / _SHARE

    def _warn(self) -> None:
        over = self.used > self._threshold * self._budget
        if over and not self._warned:
            largest = max(self._samples, key=lambda sample: sample.pss)
            _log.warning(
                "memory: %d of %d MB (taskmanager.memory.process.size) are used; the largest process is %s"
                " (pid %d) with %d MB",
                self.used >> 20,
                self._budget >> 20,
                largest.name,
                largest.pid,
                largest.pss >> 20,
            )
        self._warned = over

    def metrics(self, worker_metrics: Iterable[Mapping[str, float]] = ()) -> dict[str, float]:
        """Flink's process metrics, summed over all processes.

        Heap is PSS, and non-heap its part that is mapped from files. Direct is Arrow's buffers. Managed is
        what RocksDB may use and uses. Shuffle is what producers may send ahead, and how much of it waits.
        Garbage collection is Python's.
        """
        mapped = sum(sample.mapped for sample in self._samples)
        values: dict[str, float] = {
            "Status.JVM.CPU.Load": self._load,
            "Status.JVM.CPU.Time": sum(sample.cpu_seconds for sample in self._samples) * 1e9,
            "Status.JVM.Memory.Heap.Used": self.used,
            "Status.JVM.Memory.Heap.Committed": self.used,
            "Status.JVM.Memory.Heap.Max": self._budget,
            "Status.JVM.Memory.NonHeap.Used": mapped,
            "Status.JVM.Memory.NonHeap.Committed": mapped,
            "Status.JVM.Memory.NonHeap.Max": -1,
            "Status.JVM.Threads.Count": sum(sample.threads for sample in self._samples),
            "Status.JVM.FileDescriptor.Open": sum(sample.descriptors for sample in self._samples),
            **garbage_time.of_this_process().metrics(),
            # Sums over the workers, the only processes with these.
            **dict.fromkeys(WORKER_SUMS, 0.0),
        }
        for metrics in worker_metrics:
            for name, value in metrics.items():
                if not name.startswith(_OWN_PREFIXES):
                    values[name] = values.get(name, 0.0) + value
        return values


#: Measured from outside for all processes: a worker's own values would count twice.
_OWN_PREFIXES = (
    "Status.JVM.CPU.",
    "Status.JVM.Memory.Heap.",
    "Status.JVM.Threads.",
    "Status.JVM.FileDescriptor.",
)

#: The values that every worker reports of itself; 0 while there is no worker.
WORKER_SUMS = (
    "Status.JVM.Memory.Direct.MemoryUsed",
    "Status.JVM.Memory.Direct.TotalCapacity",
    "Status.Flink.Memory.Managed.Used",
    "Status.Flink.Memory.Managed.Total",
    "Status.Shuffle.Netty.TotalMemory",
    "Status.Shuffle.Netty.UsedMemory",
    "Status.Shuffle.Netty.AvailableMemory",
    "Status.Shuffle.Netty.TotalMemorySegments",
    "Status.Shuffle.Netty.UsedMemorySegments",
    "Status.Shuffle.Netty.AvailableMemorySegments",
)
