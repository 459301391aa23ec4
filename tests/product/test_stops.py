"""Stop strings: cut exactly, however the text is sliced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lily.stops import StopMatcher

letters = st.text("abc", max_size=14)
stop_lists = st.lists(st.text("abc", min_size=1, max_size=4), min_size=1, max_size=3)


def expected(text: str, stops: list[str]) -> tuple[str, str | None]:
    """By definition: the first end at which a stop is complete; the longest of those."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            longest = max(complete, key=len)
            return text[: end - len(longest)], longest
    return text, None


@given(letters, stop_lists, st.data())
def test_any_slicing_gives_the_definition(text, stops, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    matcher = StopMatcher(stops)
    shown = ""
    wanted, hit = expected(text, stops)
    for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
        shown += matcher.push(text[begin:end])
        assert wanted.startswith(shown)  # nothing is shown that would have to be taken back
    shown += matcher.finish()
    assert (shown, matcher.hit) == (wanted, hit)


@given(letters, stop_lists)
def test_no_more_is_held_back_than_may_begin_a_stop(text, stops):
    matcher = StopMatcher(stops)
    shown = matcher.push(text)
    if matcher.hit is None:
        held = text[len(shown) :]
        assert held == "" or any(stop.startswith(held) for stop in stops)


@pytest.mark.parametrize("cut", range(1, 10))
def test_stop_across_two_pieces(cut):
    matcher = StopMatcher(["beta gamma"])
    text = "alpha beta gamma delta"
    shown = matcher.push(text[: 6 + cut]) + matcher.push(text[6 + cut :])
    assert (shown, matcher.hit, matcher.finish()) == ("alpha ", "beta gamma", "")


def test_without_stops_everything_passes_at_once():
    matcher = StopMatcher([])
    assert (matcher.push("abc"), matcher.finish(), matcher.hit) == ("abc", "", None)
