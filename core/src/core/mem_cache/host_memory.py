"""How much of the host's memory a process may still take. Imports no torch."""

from __future__ import annotations

import os
from pathlib import Path


def available_host_bytes(root: Path = Path("/")) -> int:
    """Bytes that can be taken without swapping: what the kernel says is available, or what is left of the limit of a
    container (control group version 2), whichever is less. Systems without `/proc` answer half their memory.

    `root` is where `/proc` and `/sys` are looked for.
    """
    available = _meminfo_available(root / "proc" / "meminfo")
    if available is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    left = _left_of_limit(root / "sys" / "fs" / "cgroup")
    return available if left is None else min(available, left)


def _meminfo_available(path: Path) -> int | None:
    if not path.is_file():
        return None
    for line in path.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _left_of_limit(folder: Path) -> int | None:
    """Bytes up to the control group's limit; None if there is none. Its file cache counts as free: it is given up."""
    limit_file = folder / "memory.max"
    if not limit_file.is_file() or (limit := limit_file.read_text().strip()) == "max":
        return None
    used = int((folder / "memory.current").read_text())
    stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return max(int(limit) - used + int(stat["inactive_file"]) + int(stat["active_file"]), 0)
