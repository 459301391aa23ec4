"""What a run of the kernel tests found, short enough for the end of a log: a line a test function.

Reads pytest's JUnit file. Knows nothing of kernels.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from pathlib import Path

MOST_LINES = 50
MOST_REASONS = 2


def reason(case: ET.Element) -> str | None:
    """The line that says why a case failed; None where it passed or was skipped."""
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            lines = [line[1:] for line in (found.text or "").splitlines() if line.startswith("E ")]
            text = " ".join(lines) or found.get("message", kind)
            return " ".join(text.split())[:140]
    return None


def summary(path: Path) -> list[str]:
    """Passed and failed cases by test function, with the first different reasons."""
    tests: dict[str, list[tuple[str, str | None]]] = defaultdict(list)
    skipped = 0
    for case in ET.parse(path).iter("testcase"):
        if case.find("skipped") is not None:
            skipped += 1
            continue
        module = case.get("classname", "").split(".")[-1]
        name, _, values = case.get("name", "").partition("[")
        tests[f"{module}::{name}"].append((values.rstrip("]"), reason(case)))
    total = sum(len(cases) for cases in tests.values())
    bad = sum(why is not None for cases in tests.values() for _, why in cases)
    lines = [f"{total} cases on the GPU, {bad} failed, {skipped} skipped"]
    for test, cases in sorted(tests.items()):
        failed = [(values, why) for values, why in cases if why]
        if not failed:
            continue
        lines.append(f"{test}: {len(failed)} of {len(cases)} failed")
        shown: dict[str, str] = {}
        for values, why in failed:
            shown.setdefault(why, values)
        lines += [f"    [{values}] {why}" for why, values in list(shown.items())[:MOST_REASONS]]
    return lines


def main() -> int:
    """Print the summary, or the end of the log where pytest came to no result."""
    results, log = Path(sys.argv[1]), Path(sys.argv[2])
    try:
        lines = summary(results)
    except (OSError, ET.ParseError) as error:
        lines = [f"no results ({error}); the log ends so:", *log.read_text().splitlines()[-40:]]
    print("\n".join(lines[:MOST_LINES]))
    if len(lines) > MOST_LINES:
        print(f"... and {len(lines) - MOST_LINES} lines more")
    return 0


if __name__ == "__main__":
    sys.exit(main())
