"""A child of a comparison that computes nothing: ``python fake_engine.py ENGINE RATE FAULT``.

Gives figures that follow from RATE, and greedy tokens that follow from the length; with FAULT
"unsteady" other tokens in every process, with "crash" a dead process, with "error" a refusal.
"""

from __future__ import annotations

import json
import os
import sys

engine, rate, fault = sys.argv[1:]
for line in sys.stdin:
    length, tokens = map(int, json.loads(line)["job"].split())
    if fault == "crash":
        os.abort()
    first = os.getpid() if fault == "unsteady" else length
    answer = {
        "prefill_s": length / (10 * float(rate)),
        "decode_s": tokens / float(rate),
        "digest": f"{first:016x}",
        "greedy": [first, *range(1, tokens), 7 if engine == "lily" else 8],
        "about": f"{engine} of a test",
    }
    if fault == "error":
        answer = {"ok": False, "detail": "OutOfMemory: no memory"}
    print(json.dumps(answer), flush=True)
