"""The Parquet files of the columnar bounded programs, written once and kept.

Three columns: a key of 1000, a whole number below a million, a float. Started as `python -m bench.programs.batch_files`
from the root of the checkout.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.case import ROOT
from bench.programs.batch_functions import COLUMNS

KEYS = 1000
_VALUES = 1_000_000
_FILES = 4
#: Rows of a row group.
_GROUP = 1_000_000
_KEPT = ROOT / ".bench-data"


def parquet_folder(rows: int) -> Path:
    """The folder of files with so many rows together, written if they are not there."""
    folder = _KEPT / f"parquet-{rows}"
    if not folder.exists():
        _KEPT.mkdir(exist_ok=True)
        # Another program may write the same files at this moment: the first to finish wins.
        made = Path(tempfile.mkdtemp(dir=_KEPT, prefix="parquet-"))
        _write(made, rows)
        try:
            os.rename(made, folder)
        except OSError:
            shutil.rmtree(made)
    return folder


def _write(folder: Path, rows: int) -> None:
    random = np.random.default_rng(seed=1)
    for number in range(_FILES):
        left = (number + 1) * rows // _FILES - number * rows // _FILES
        with pq.ParquetWriter(folder / f"{number}.parquet", COLUMNS) as writer:
            while left:
                count = min(left, _GROUP)
                left -= count
                values = random.integers(0, _VALUES, count)
                columns = [random.integers(0, KEYS, count), values, values * 0.5]
                writer.write_batch(pa.record_batch(columns, schema=COLUMNS), row_group_size=_GROUP)


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("rows", type=int)
    print(parquet_folder(arguments.parse_args().rows))
