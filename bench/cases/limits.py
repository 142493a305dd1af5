"""The limits against the peers: whether the bare programs are fit to judge an engine by."""

from __future__ import annotations

from bench.case import Case
from bench.peers import programs

CASES = [
    Case(
        "bare-loop-integers",
        programs.BARE_INTEGERS,
        (*programs.BYTEWAX, programs.PYFLINK),
        at_least=tuple((peer.name, 8.0) for peer in programs.BYTEWAX),
    ),
    Case("bare-loop-strings", programs.BARE_STRINGS),
    Case("bare-loop-orders", programs.BARE_ORDERS),
    Case("bare-columnar-1000-keys-64k", programs.BARE_COLUMNAR_64K, programs.FLINK_SQL),
    Case("bare-columnar-1000-keys-16k", programs.BARE_COLUMNAR_16K),
    Case("bare-columnar-1m-keys-64k", programs.BARE_COLUMNAR_MANY_64K),
    Case("bare-columnar-1m-keys-16k", programs.BARE_COLUMNAR_MANY_16K),
]
