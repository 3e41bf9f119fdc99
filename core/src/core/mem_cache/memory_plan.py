"""How many pages a KV pool gets: asked once, after the weights are loaded and before the pool is allocated."""

from __future__ import annotations

import torch

from core.errors import ConfigError
from core.mem_cache.host_memory import available_host_bytes

CPU_POOL_BYTES = 4 * 2**30
"""What a pool in host memory takes by default, if its owner has more: other programs live there too."""

USEFUL_TOKENS = 2**20
"""A pool by default holds all running requests at full length, or this many tokens if that is more, and no further:
small models would have pages by the hundred million."""


def available_bytes(device: torch.device) -> int:
    """Bytes that can be allocated on a device now. Initialises it if it is not the CPU."""
    if device.type == "cpu":
        return available_host_bytes()
    free_bytes, _ = torch.get_device_module(device).mem_get_info(device)
    return int(free_bytes)


def plan_num_pages(
    *,
    free_bytes: int,
    bytes_per_page: int,
    page_size: int,
    max_context_len: int,
    max_running_requests: int,
    max_total_tokens: int | None,
    mem_fraction: float,
    device_type: str,
) -> int:
    """Pages of a pool, the dummy page 0 included.

    With `max_total_tokens`, as many as these tokens need. Otherwise `mem_fraction` of the free bytes, but on the CPU at
    most `CPU_POOL_BYTES` (or one request of full length, if that takes more), and nowhere more than is useful
    (`USEFUL_TOKENS`).

    Args:
        free_bytes: what the device has left, weights loaded.
        bytes_per_page: of all layers, keys and values.
        page_size: tokens a page.
        max_context_len: most tokens of a request.
        max_running_requests: most requests in one batch.
        max_total_tokens: the setting, or None.
        mem_fraction: share of `free_bytes` that the pool may take; the rest is for activations.
        device_type: torch's name of the device type.

    Raises `ConfigError` if there is no room for `max_total_tokens`, or without it for one request of full length.
    """
    budget = int(free_bytes * mem_fraction)
    if max_total_tokens is not None:
        num_pages = _pages(max_total_tokens, page_size) + 1
        if num_pages * bytes_per_page > budget:
            raise ConfigError(
                f"--max-total-tokens {max_total_tokens} needs {_gib(num_pages * bytes_per_page)} for keys and values, "
                f"but the pool may take {_gib(budget)} ({mem_fraction:g} of {_gib(free_bytes)} free on {device_type}): "
                f"ask for fewer tokens or raise --mem-fraction"
            )
        return num_pages
    full_request = _pages(max_context_len, page_size) + 1
    if full_request * bytes_per_page > budget:
        raise ConfigError(
            f"one request of {max_context_len} tokens needs {_gib(full_request * bytes_per_page)} for keys and values, "
            f"but the pool may take {_gib(budget)} ({mem_fraction:g} of {_gib(free_bytes)} free on {device_type}): "
            f"lower --context-length, raise --mem-fraction or set --max-total-tokens"
        )
    if device_type == "cpu":
        budget = min(budget, max(CPU_POOL_BYTES, full_request * bytes_per_page))
    useful = max_running_requests * _pages(max_context_len, page_size)
    return min(budget // bytes_per_page, max(useful, _pages(USEFUL_TOKENS, page_size)) + 1)


def _pages(num_tokens: int, page_size: int) -> int:
    return -(-num_tokens // page_size)


def _gib(num_bytes: int) -> str:
    return f"{num_bytes / 2**30:.2f} GiB"
