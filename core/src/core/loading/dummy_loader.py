"""`DummyLoader`: random weights of a configuration's shapes, for measuring without a download."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

import torch

from core.loading.folder_loader import FolderLoader
from core.models.causal_lm import CausalLM

STD = 0.02


@final
class DummyLoader(FolderLoader):
    """Needs `config.json` alone. The same seed gives the same weights on the same type of device."""

    def iter_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Nothing: no file holds them. `load_into` draws them where they are needed."""
        return iter(())

    @torch.no_grad()
    def load_into(self, model: CausalLM) -> None:
        """Draw every parameter from N(0, `STD`) on its own device; the weights of norms are 1."""
        generators: dict[torch.device, torch.Generator] = {}
        for name, target in model.weight_targets().items():
            if name.endswith("norm.weight"):
                target.fill_(1.0)
                continue
            device = target.device
            if device not in generators:
                generators[device] = torch.Generator(device).manual_seed(self.context.seed)
            target.normal_(0.0, STD, generator=generators[device])
