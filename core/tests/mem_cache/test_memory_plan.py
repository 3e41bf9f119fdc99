"""How many pages a pool gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from core.errors import ConfigError
from core.mem_cache.host_memory import available_host_bytes
from core.mem_cache.memory_plan import CPU_POOL_BYTES, USEFUL_TOKENS, available_bytes, plan_num_pages

GIB = 2**30


def plan(**changes: Any) -> int:
    settings: dict[str, Any] = {
        "free_bytes": 64 * GIB,
        "bytes_per_page": 2**20,
        "page_size": 16,
        "max_context_len": 8192,
        "max_running_requests": 256,
        "max_total_tokens": None,
        "mem_fraction": 0.5,
        "device_type": "cuda",
    }
    return plan_num_pages(**(settings | changes))


def test_gpu_takes_its_share_of_free_memory() -> None:
    assert plan() == 32 * 1024
    assert plan(mem_fraction=0.25) == 16 * 1024


def test_cpu_pool_is_capped() -> None:
    assert plan(device_type="cpu") == CPU_POOL_BYTES // 2**20
    assert plan(device_type="cpu", free_bytes=2 * GIB) == 1024


def test_cpu_cap_makes_room_for_one_request_of_full_length() -> None:
    pages = 5 * 1024  # 5 GiB for one request
    assert plan(device_type="cpu", max_context_len=pages * 16) == pages + 1


def test_small_models_get_no_more_pages_than_useful() -> None:
    assert plan(bytes_per_page=64, max_context_len=128) == USEFUL_TOKENS // 16 + 1
    assert plan(bytes_per_page=64, max_context_len=128, page_size=1) == USEFUL_TOKENS + 1
    assert plan(bytes_per_page=64, max_context_len=8192) == 256 * 8192 // 16 + 1


def test_max_total_tokens_is_taken_at_its_word() -> None:
    assert plan(max_total_tokens=1) == 2
    assert plan(max_total_tokens=160) == 11
    assert plan(max_total_tokens=161) == 12
    assert plan(max_total_tokens=7, page_size=1) == 8
    assert plan(device_type="cpu", max_total_tokens=16 * 8 * 1024) == 8 * 1024 + 1, "it lifts the cap"


def test_no_room_for_one_request() -> None:
    assert plan(free_bytes=2 * 513 * 2**20) == 513
    with pytest.raises(ConfigError) as caught:
        plan(free_bytes=2 * 513 * 2**20 - 1)
    for part in ("8192 tokens", "needs 0.50 GiB", "0.5 of 1.00 GiB free on cuda", "--context-length", "--mem-fraction"):
        assert part in str(caught.value)


def test_no_room_for_max_total_tokens() -> None:
    assert plan(max_total_tokens=16 * 511, free_bytes=GIB) == 512
    with pytest.raises(ConfigError, match=r"--max-total-tokens 8192 needs 0\.50 GiB .* may take 0\.50 GiB"):
        plan(max_total_tokens=16 * 512, free_bytes=GIB)


def test_available_bytes_of_the_host() -> None:
    assert 0 < available_bytes(torch.device("cpu")) == pytest.approx(available_host_bytes(), rel=0.5)


def write_meminfo(root: Path) -> None:
    (root / "proc").mkdir()
    (root / "proc" / "meminfo").write_text("MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    4000 kB\n")


def write_limit(root: Path, limit: str) -> None:
    folder = root / "sys" / "fs" / "cgroup"
    folder.mkdir(parents=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text("900000\n")
    (folder / "memory.stat").write_text("anon 500000\nfile 400000\ninactive_file 300000\nactive_file 100000\n")


def test_host_memory_is_what_the_kernel_calls_available(tmp_path: Path) -> None:
    write_meminfo(tmp_path)
    assert available_host_bytes(tmp_path) == 4000 * 1024


@pytest.mark.parametrize(
    ("limit", "available"), [("max", 4000 * 1024), ("1000000", 500000), ("100", 0), (str(2**40), 4000 * 1024)]
)
def test_a_containers_limit_counts(tmp_path: Path, limit: str, available: int) -> None:
    write_meminfo(tmp_path)
    write_limit(tmp_path, limit)
    assert available_host_bytes(tmp_path) == available


def test_system_without_proc(tmp_path: Path) -> None:
    assert available_host_bytes(tmp_path) > 0
