"""Log-probabilities: finite numbers, alternatives that read alike, offsets in characters."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from core.managers.outputs import TokenLogprob
from core.server.logprobs import LOWEST, TextOffsets, chat_logprobs, completion_logprobs

NOBODY: frozenset[int] = frozenset()


def token(
    utf8: bytes, logprob: float | None = -1.0, top: tuple[tuple[int, str, bytes, float], ...] = ()
) -> TokenLogprob:
    return TokenLogprob(utf8[0], utf8.decode(errors="replace"), utf8, logprob, top)


def test_minus_infinity_is_a_finite_number() -> None:
    impossible = token(b"a", float("-inf"), ((98, "b", b"b", float("-inf")),))
    shown = completion_logprobs([impossible], TextOffsets(0, NOBODY), 1)
    assert shown.token_logprobs == [LOWEST]
    assert shown.top_logprobs == [{"b": LOWEST, "a": LOWEST}]
    (entry,) = chat_logprobs([impossible], 1).content
    assert (entry.logprob, entry.top_logprobs[0].logprob) == (LOWEST, LOWEST)


def test_of_alternatives_that_read_alike_the_likelier_stays() -> None:
    alike = ((1, "a", b"a", -0.5), (2, "a", b"a", -3.0), (3, "c", b"c", -4.0))
    shown = completion_logprobs([token(b"a", -3.0, alike)], TextOffsets(0, NOBODY), 3)
    assert shown.top_logprobs == [{"a": -0.5, "c": -4.0}]
    assert shown.token_logprobs == [-3.0]


def test_the_chosen_token_comes_on_top_of_the_likeliest() -> None:
    top = ((1, "x", b"x", -0.1), (2, "y", b"y", -0.2))
    shown = completion_logprobs([token(b"z", -5.0, top)], TextOffsets(0, NOBODY), 2)
    assert shown.top_logprobs == [{"x": -0.1, "y": -0.2, "z": -5.0}]
    (entry,) = chat_logprobs([token(b"z", -5.0, top)], 2).content
    assert [other.token for other in entry.top_logprobs] == ["x", "y"]


def test_more_alternatives_than_asked_for_are_cut() -> None:
    top = ((1, "x", b"x", -0.1), (2, "y", b"y", -0.2))
    (entry,) = chat_logprobs([token(b"x", -0.1, top)], 1).content
    assert len(entry.top_logprobs) == 1


@given(text=st.text(), cuts=st.lists(st.integers(min_value=1, max_value=5), max_size=40), start=st.integers(0, 50))
def test_offsets_are_where_the_characters_are(text: str, cuts: list[int], start: int) -> None:
    """Tokens are cut anywhere in the bytes; a token's offset is that of the character that its first byte is in."""
    utf8, tokens, places, position = text.encode(), [], [], 0
    for cut in [*cuts, *[3] * len(utf8)]:
        if position < len(utf8):
            tokens.append(token(utf8[position : position + cut]))
            places.append(position)
            position += cut
    expected = [start + len(utf8[:place].decode(errors="ignore")) for place in places]
    assert completion_logprobs(tokens, TextOffsets(start, NOBODY), 0).text_offset == expected


def test_invisible_tokens_take_no_room() -> None:
    tokens = [token(b"<s>"), token(b"a"), token(b"<s>"), token(b"b")]
    assert completion_logprobs(tokens, TextOffsets(0, frozenset({ord("<")})), 0).text_offset == [0, 0, 1, 1]
