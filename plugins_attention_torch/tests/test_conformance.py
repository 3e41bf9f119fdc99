"""The torch backend does what every attention backend must."""

from __future__ import annotations

from core.testing.attention_suite import AttentionBackendSuite


class TestTorch(AttentionBackendSuite):
    backend = "torch"
