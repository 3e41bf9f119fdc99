"""Fixtures that tests of several distributions share."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import core  # noqa: F401 - before pytest takes the folder core/, which it finds first, for the package

ROOT = Path(__file__).parent
DEMO_MODEL = ROOT / ".demo" / "SmolLM2-135M-Instruct.Q4_1.gguf"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all-prompts", action="store_true", help="the demo model's full comparison with transformers")


@pytest.fixture(scope="session")
def demo_model() -> Path:
    """The demo model as a GGUF file; fetched once."""
    if not DEMO_MODEL.exists():
        subprocess.run([sys.executable, str(ROOT / "scripts" / "demo_model.py"), str(DEMO_MODEL)], check=True)
    return DEMO_MODEL
