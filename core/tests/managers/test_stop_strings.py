"""Stop strings in a stream, against a search in the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.managers.stop_strings import StopStrings

letters = st.text("ab<|", min_size=1, max_size=5)


def first_match(text: str, stops: list[str]) -> tuple[int, str] | None:
    """Where the first complete stop string ends, and which it is: a search in words, one character at a time."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            return end, max(ending, key=len)
    return None


def stream(stops: list[str], pieces: list[str], include_stop: bool = False) -> tuple[str, str | None, list[str]]:
    stop_strings, emitted = StopStrings(stops, include_stop), []
    for piece in pieces:
        text, matched = stop_strings.push(piece)
        emitted.append(text)
        if matched is not None:
            assert stop_strings.flush() == ""
            return "".join(emitted), matched, emitted
    emitted.append(stop_strings.flush())
    return "".join(emitted), None, emitted


@settings(max_examples=1000, deadline=None)
@given(
    stops=st.lists(letters, min_size=1, max_size=4),
    pieces=st.lists(st.text("ab<|", max_size=6), max_size=12),
    include_stop=st.booleans(),
)
def test_equals_a_search_in_the_whole_text(stops: list[str], pieces: list[str], include_stop: bool) -> None:
    whole = "".join(pieces)
    got, matched, _ = stream(stops, pieces, include_stop)
    expected = first_match(whole, stops)
    if expected is None:
        assert (got, matched) == (whole, None)
    else:
        end, stop = expected
        assert matched == stop
        assert got == (whole[:end] if include_stop else whole[: end - len(stop)])


@settings(max_examples=500, deadline=None)
@given(stops=st.lists(letters, min_size=1, max_size=4), pieces=st.lists(st.text("ab<|", max_size=6), max_size=12))
def test_holds_back_exactly_the_longest_end_that_may_become_a_stop_string(stops: list[str], pieces: list[str]) -> None:
    stop_strings, seen, let_through = StopStrings(stops, False), "", ""
    for piece in pieces:
        seen += piece
        text, matched = stop_strings.push(piece)
        if matched is not None:
            return
        let_through += text
        ends = [seen[at:] for at in range(len(seen) + 1)]
        longest = next(end for end in ends if any(stop.startswith(end) for stop in stops))
        assert let_through == seen[: len(seen) - len(longest)]


def test_text_that_turns_out_not_to_match_is_released() -> None:
    stops = StopStrings(["<end>"], False)
    assert stops.push("a<e") == ("a", None)
    assert stops.push("n") == ("", None)
    assert stops.push("ough") == ("<enough", None)
    assert stops.push("<<end") == ("<", None)
    assert stops.flush() == "<end"


def test_a_stop_string_over_several_pieces() -> None:
    assert stream(["<end>"], ["a", "b<", "en", "d>", "c"]) == ("ab", "<end>", ["a", "b", "", ""])
    assert stream(["<end>"], ["a", "b<", "en", "d>"], include_stop=True)[0] == "ab<end>"


@pytest.mark.parametrize("pieces", [["abcd"], ["a", "b", "c", "d"], ["ab", "cd"]])
def test_of_overlapping_ones_the_first_complete_one_wins(pieces: list[str]) -> None:
    assert stream(["abcd", "bc"], pieces)[:2] == ("a", "bc")
    assert stream(["bcd", "abcd", "d"], pieces)[:2] == ("", "abcd")


def test_a_stop_string_that_repeats_itself_is_found_after_a_false_start() -> None:
    assert stream(["aab"], ["a", "a", "a", "b"])[:2] == ("a", "aab")


def test_without_stop_strings_nothing_is_held_back() -> None:
    assert StopStrings([], False).push("text") == ("text", None)
