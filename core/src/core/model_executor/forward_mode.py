"""`ForwardMode`: what kind of step a batch is. Imports no torch: the scheduler uses it."""

from __future__ import annotations

from enum import Enum


class ForwardMode(Enum):
    """What the rows of a batch do in one forward pass."""

    EXTEND = "extend"
    """New tokens of a prompt, or of a chunk of it, after a cached prefix of any length."""

    DECODE = "decode"
    """One token a row."""

    MIXED = "mixed"
    """Extending rows first, then decoding rows, each of which extends by one token."""

    IDLE = "idle"
    """No row here, but the other ranks run."""

    def is_decode(self) -> bool:
        return self is ForwardMode.DECODE

    def is_extend_or_mixed(self) -> bool:
        return self is ForwardMode.EXTEND or self is ForwardMode.MIXED
