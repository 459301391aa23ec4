"""docs/hybrid.md says what the code does: its settings are the defaults, and complete."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest
from lily.hybrid import HybridSettings
from lily.hybrid.outbound import _LONGEST_PAUSE_S, _PATIENCE
from lily.hybrid.tools import MOST_CALLS
from lily.server.consents import WAIT_S

from .canary import READINGS

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = (Path(__file__).parents[2] / "docs" / "hybrid.md").read_text("utf-8")


def test_the_settings_of_the_page_are_the_defaults():
    """All of them, with the planner's address and model alone as an example."""
    document = tomllib.loads(re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1])
    made = HybridSettings.from_dict(document)
    plain = HybridSettings()
    planner = dataclasses.replace(made.planner, base_url="", model="")
    assert dataclasses.replace(made, planner=planner) == plain
    for name in ("planner", "worker", "release"):
        assert set(document[name]) == {f.name for f in dataclasses.fields(getattr(plain, name))}
    assert set(document) == {f.name for f in dataclasses.fields(plain)}


@pytest.mark.parametrize(
    "said",
    [
        f"`retry-after` ({_LONGEST_PAUSE_S:.0f} s at most)",
        f"no answer within {WAIT_S:.0f} s is a no",
        {8: "eight calls a request"}[MOST_CALLS],
        {10: "ten times as long"}[_PATIENCE],
        f"in {len(READINGS)} forms",
    ],
)
def test_figures(said):
    """Constants of the code that the page names."""
    assert said in PAGE
