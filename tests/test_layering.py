"""Imports point one way, and core knows no plugin by name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

CORE = Path(__file__).parent.parent / "core" / "src" / "core"
FOLDERS = ["server", "managers", "model_executor", "loading", "models", "attention", "mem_cache", "sampling", "layers"]
MAY_IMPORT = {
    "server": {"managers", "model_executor", "loading", "sampling"},
    "managers": {"model_executor", "loading", "mem_cache", "sampling"},
    "model_executor": {"attention", "mem_cache", "sampling", "layers", "models", "loading"},
    "loading": {"models", "layers", "mem_cache"},
    "models": {"attention", "layers", "mem_cache"},
    "attention": {"mem_cache"},
    "mem_cache": set(),
    "sampling": set(),
    "layers": set(),
}
"""Folder -> the other folders that it may import at run time."""

HOST_ONLY = ["scheduler", "schedule_batch", "schedule_policy", "request", "engine_core", "messages"]
PLUGIN_NAMES = {"flashinfer", "triton", "mha", "gguf", "safetensors", "dummy"}


def runtime_imports(node: ast.AST) -> Iterator[str]:
    """Modules that a file imports when it runs; those under `if TYPE_CHECKING` do not count."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            yield child.module
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        else:
            yield from runtime_imports(child)


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(), str(file))


@pytest.mark.parametrize("folder", FOLDERS)
def test_imports_point_one_way(folder: str) -> None:
    files = sorted((CORE / folder).rglob("*.py"))
    assert files
    wrong = [
        f"{file.relative_to(CORE)} imports {module}"
        for file in files
        for module in runtime_imports(parse(file))
        if module.startswith("core.")
        and (other := module.split(".")[1]) in FOLDERS
        and other != folder
        and other not in MAY_IMPORT[folder]
    ]
    assert not wrong


@pytest.mark.parametrize("name", HOST_ONLY)
def test_the_scheduler_imports_no_torch(name: str) -> None:
    assert not [m for m in runtime_imports(parse(CORE / "managers" / f"{name}.py")) if m.split(".")[0] == "torch"]


def test_core_imports_no_backend_and_no_kernel_library() -> None:
    banned = ("triton", "flashinfer", "plugin_")
    wrong = [
        f"{file.relative_to(CORE)} imports {module}"
        for file in CORE.rglob("*.py")
        for module in runtime_imports(parse(file))
        if module.startswith(banned)
    ]
    assert not wrong


def test_core_compares_no_plugin_name() -> None:
    wrong = [
        f"{file.relative_to(CORE)}:{node.lineno}"
        for file in CORE.rglob("*.py")
        for node in ast.walk(parse(file))
        if isinstance(node, ast.Compare)
        and any(
            isinstance(part, ast.Constant) and part.value in PLUGIN_NAMES for part in [node.left, *node.comparators]
        )
    ]
    assert not wrong
