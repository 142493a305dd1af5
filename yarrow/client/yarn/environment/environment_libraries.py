"""Shared libraries that an environment takes from the system: found by reading ELF files, without running any of them.

Owner: the client's thread; blocking. Knows ELF's dynamic section (System V gABI) and the order in which the
loader searches; must not know the form of an archive. The C runtime stays the node's own. It must fit the
node's kernel and name service, and two C runtimes in one process do not work.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import subprocess
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

#: Parts of glibc (and of musl), by the names that other objects use.
_C_RUNTIME = re.compile(
    r"(ld-linux.*|ld64|ld-musl.*|libc|libc\.musl.*|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl"
    r"|libBrokenLocale|libthread_db|libnss_.*)\.so(\.\d+)*"
)
#: The loader's default folders.
_DEFAULT_FOLDERS = ("/lib64", "/usr/lib64", "/lib", "/usr/lib", "/usr/local/lib")
_CACHE_LINE = re.compile(r"\s*(\S+) \(([^)]*)\) => (\S+)")

_MAGIC = b"\x7fELF"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NULL, _DT_NEEDED, _DT_STRTAB, _DT_RPATH, _DT_RUNPATH = 0, 1, 5, 15, 29


@dataclass(frozen=True, slots=True)
class DynamicSection:
    """An ELF object's requests to the loader."""

    needed: tuple[str, ...]
    #: Search path before LD_LIBRARY_PATH, and the one after it.
    rpath: tuple[str, ...] = ()
    runpath: tuple[str, ...] = ()


def is_c_runtime(name: str) -> bool:
    """Whether a library (its file name, e.g. `libm.so.6`) belongs to the C runtime of the node."""
    return _C_RUNTIME.fullmatch(os.path.basename(name)) is not None


def read_dynamic_section(path: str) -> DynamicSection | None:
    """The object's requests; None for a file that is no 64-bit little-endian ELF object with a dynamic section."""
    with open(path, "rb") as file:
        head = file.read(64)
        if len(head) < 64 or head[:4] != _MAGIC or head[4:6] != b"\x02\x01":
            return None
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data, head)


def _parse(data: mmap.mmap, head: bytes) -> DynamicSection | None:
    (offset,) = struct.unpack_from("<Q", head, 32)
    entry_size, count = struct.unpack_from("<HH", head, 54)
    loads: list[tuple[int, int, int]] = []
    dynamic: tuple[int, int] | None = None
    for number in range(count):
        kind, _, start, address, _, size = struct.unpack_from("<IIQQQQ", data, offset + number * entry_size)
        if kind == _PT_LOAD:
            loads.append((address, start, size))
        elif kind == _PT_DYNAMIC:
            dynamic = (start, size)
    if dynamic is None:
        return None
    entries: list[tuple[int, int]] = []
    for position in range(dynamic[0], dynamic[0] + dynamic[1], 16):
        tag, value = struct.unpack_from("<qQ", data, position)
        if tag == _DT_NULL:
            break
        entries.append((tag, value))
    address = next((value for tag, value in entries if tag == _DT_STRTAB), None)
    if address is None:
        return None
    table = next(start + address - base for base, start, size in loads if base <= address < base + size)

    def texts(wanted: int) -> tuple[str, ...]:
        found = []
        for tag, value in entries:
            if tag == wanted:
                begin = table + value
                found.append(data[begin : data.find(b"\0", begin)].decode())
        return tuple(found)

    def folders(wanted: int) -> tuple[str, ...]:
        return tuple(folder for text in texts(wanted) for folder in text.split(":") if folder)

    return DynamicSection(texts(_DT_NEEDED), folders(_DT_RPATH), folders(_DT_RUNPATH))


def libraries_outside(objects: Iterable[str], inside: Iterable[str]) -> dict[str, str]:
    """`{requested name: file}` of every library that `objects` need, directly or not, and do not contain.

    `inside` are the folders of packed files. The C runtime and libraries missing on this machine are left
    out.
    """
    packed = tuple(os.path.realpath(folder) + os.sep for folder in inside)
    search = _Search()
    found: dict[str, str] = {}
    waiting = deque(objects)
    seen = set(waiting)
    while waiting:
        path = waiting.popleft()
        section = read_dynamic_section(path)
        for name in section.needed if section is not None else ():
            if is_c_runtime(name) or name in found:
                continue
            assert section is not None
            library = search.find(name, path, section)
            if library is None:
                # An optional extension may need a missing library: it cannot be imported here either.
                continue
            real = os.path.realpath(library)
            if not (os.path.abspath(library) + os.sep).startswith(packed) and not real.startswith(packed):
                found[name] = real
            if library not in seen:
                seen.add(library)
                waiting.append(library)
    return found


class _Search:
    """The loader's order: RPATH, LD_LIBRARY_PATH, RUNPATH, its cache, its default folders."""

    def __init__(self) -> None:
        variable = os.environ.get("LD_LIBRARY_PATH", "")
        self._variable = tuple(folder for folder in variable.split(":") if folder)
        self._cache: Mapping[str, str] | None = None

    def find(self, name: str, asking: str, section: DynamicSection) -> str | None:
        """The file that `asking` gets for `name`; None if there is none."""
        if "/" in name:
            return name if os.path.exists(name) else None
        origin = os.path.dirname(os.path.realpath(asking))
        rpath = () if section.runpath else section.rpath
        for folder in (*rpath, *self._variable, *section.runpath):
            candidate = os.path.join(_expand(folder, origin), name)
            if os.path.exists(candidate):
                return os.path.normpath(candidate)
        if self._cache is None:
            self._cache = _loader_cache()
        if name in self._cache:
            return self._cache[name]
        # Wheels that load their own libraries first (auditwheel's, pyarrow's) need no search path for them.
        for folder in (origin, *_DEFAULT_FOLDERS):
            candidate = os.path.join(folder, name)
            if os.path.exists(candidate):
                return candidate
        return None


def _expand(folder: str, origin: str) -> str:
    return folder.replace("${ORIGIN}", origin).replace("$ORIGIN", origin)


def _loader_cache() -> dict[str, str]:
    """`ldconfig -p` with this machine's word size; empty without ldconfig (musl)."""
    program = next((path for path in ("/sbin/ldconfig", "/usr/sbin/ldconfig") if os.path.exists(path)), None)
    if program is None:
        return {}
    listing = subprocess.run([program, "-p"], capture_output=True, text=True, timeout=30, check=False).stdout
    found: dict[str, str] = {}
    for line in listing.splitlines():
        match = _CACHE_LINE.match(line)
        if match and ("x86-64" in match[2] or "AArch64" in match[2] or "64bit" in match[2]):
            found.setdefault(match[1], match[3])
    return found
