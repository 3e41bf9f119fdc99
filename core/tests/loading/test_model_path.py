"""Folders, files, hub ids and nonsense."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import constants
from huggingface_hub.errors import HFValidationError

from core.errors import ModelError
from core.loading.model_path import file_suffixes, resolve_model


def test_what_is_there_is_taken_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "model.gguf"
    file.touch()
    assert resolve_model(str(tmp_path)) == tmp_path
    assert resolve_model(str(file)) == file
    tmp_path.joinpath("owner", "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert resolve_model("owner/model") == Path("owner/model")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_model("~/owner") == tmp_path / "owner"


@pytest.mark.parametrize(
    "model", ["", "gpt2", "./owner/model", "/nowhere/model", "a/b/c", "~/absent/x", "models/absent.gguf"]
)
def test_nonsense_is_refused_without_asking_the_hub(
    model: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def ask(*args: Any, **options: Any) -> str:
        raise AssertionError("asked the hub")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", ask)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"no folder or file '.*', and it is no hub id such as"):
        resolve_model(model)


def test_a_hub_id_comes_from_the_cache_when_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--owner--model"
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    snapshot.joinpath("config.json").write_text("{}")
    refs = repository / "refs"
    refs.mkdir()
    refs.joinpath("main").write_text("0" * 40)
    assert resolve_model("owner/model") == snapshot
    assert resolve_model("owner/model", "0" * 40) == snapshot
    with pytest.raises(ModelError, match=r"no model of that name at revision 'v2' came from the hub"):
        resolve_model("owner/model", "v2")
    with pytest.raises(ModelError, match=r"no folder 'owner/absent', and no model of that name came from the hub"):
        resolve_model("owner/absent")


def test_only_what_serving_needs_is_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from huggingface_hub.utils import filter_repo_objects

    fetched: list[str] = []
    files = ["config.json", "model.safetensors", "tokenizer.model", "merges.txt", "chat_template.jinja"]
    others = ["pytorch_model.bin", "consolidated.safetensors", "original/params.json", "onnx/config.json", "x.gguf"]

    def fetch(model: str, *, revision: str | None, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        assert (model, revision) == ("owner/model", "v1")
        patterns = {"allow_patterns": allow_patterns, "ignore_patterns": ignore_patterns}
        fetched.extend(filter_repo_objects([*files, *others], **patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    assert resolve_model("owner/model", "v1") == tmp_path
    assert fetched == files


@pytest.mark.parametrize("error", [OSError(), OSError("two\nlines"), HFValidationError("bad id")])
def test_any_failure_of_the_hub_is_a_model_error(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: Any, **options: Any) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fail)
    with pytest.raises(ModelError, match="check the name and the network, or give a folder"):
        resolve_model("owner/model")


def test_suffixes(tmp_path: Path) -> None:
    for name in ("a.GGUF", "b.json", "README", ".hidden", "c.tar.gz"):
        tmp_path.joinpath(name).touch()
    tmp_path.joinpath("folder.safetensors").mkdir()
    assert file_suffixes(tmp_path) == {".gguf", ".json", ".gz"}
    assert file_suffixes(tmp_path / "a.GGUF") == {".gguf"}
