"""`PageUpdate`: what the device's page table must learn before a step. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int32Array = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class PageUpdate:
    """Pages added to the page table of one KV group: `table[rows[i], columns[i]] = page_ids[i]`."""

    rows: Int32Array
    columns: Int32Array
    page_ids: Int32Array
