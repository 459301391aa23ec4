"""``python -m lily`` is the same as ``lily``."""

from __future__ import annotations

from lily.cli import main

main()
