"""Where a model's files are."""

from __future__ import annotations

from pathlib import Path

from core.errors import ModelError

_PATTERNS = ["*.json", "*.safetensors", "*.model", "*.txt", "*.jinja"]
_NOT = ["*/*", "consolidated*"]
"""Copies of the weights in other formats, which many repositories hold in folders or under the model's first name."""


def resolve_model(model: str, revision: str | None = None) -> Path:
    """The local folder or file of a model.

    Args:
        model: a folder or file, taken as it is; or a hub id, of which what is not in the hub's cache is fetched.
        revision: of a hub id: a branch, tag or commit.

    Raises:
        ModelError: it is neither; or the hub does not have it, or neither hub nor cache can be reached.
    """
    path = Path(model).expanduser()
    if model and path.exists():
        return path
    if model.count("/") != 1 or model.startswith((".", "/", "~")) or path.suffix in (".gguf", ".safetensors"):
        raise ModelError(
            f"There is no folder or file {model!r}, and it is no hub id such as Qwen/Qwen3-8B; check its spelling"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=_PATTERNS, ignore_patterns=_NOT))
    except (HFValidationError, OSError) as error:
        cause = (str(error).splitlines() or [""])[0]
        at = f" at revision {revision!r}" if revision else ""
        raise ModelError(
            f"There is no folder {model!r}, and no model of that name{at} came from the hub or its cache "
            f"({type(error).__name__}: {cause}); check the name and the network, or give a folder"
        ) from error


def file_suffixes(path: Path) -> frozenset[str]:
    """Endings, in lower case, of the file itself or of the files in the folder."""
    files = [path] if path.is_file() else (file for file in path.iterdir() if file.is_file())
    return frozenset(file.suffix.lower() for file in files if file.suffix)
