"""``python -m bench.gate``: short for ``python -m bench gate``."""

from __future__ import annotations

import sys

from bench.__main__ import main

sys.argv.insert(1, "gate")  # what the result file shows as its command
sys.exit(main(sys.argv[1:]))
