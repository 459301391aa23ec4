"""Which checks there are: every kernel, at the shapes of the models that use it.

Owns the list and nothing else.
"""

from __future__ import annotations

from lily.doctor.cases_decode import decode_checks
from lily.doctor.cases_encoder import encoder_checks
from lily.doctor.cases_prefill import prefill_checks
from lily.doctor.check import Check
from lily.doctor.shapes import REAL, TINY

# Few rows take kernels of their own on a GPU (below 8), and a last tile that is not full.
_TOKENS = {"quick": (5, 33), "tiny": (2, 5, 33, 130), "real": (5, 130)}


def all_checks(*, quick: bool) -> list[Check]:
    """Small ones first, so that what is plainly broken shows at once."""
    tiny = _TOKENS["quick" if quick else "tiny"]
    contexts = (1, 300) if quick else (1, 63, 64, 300, 4099)
    checks = [*decode_checks(TINY, contexts), *prefill_checks(TINY, tiny, 67)]
    checks += encoder_checks((7, 27) if quick else (1, 27, 112, 128))
    if not quick:
        checks += decode_checks(REAL, (300, 4096, 32_768))
        checks += prefill_checks(REAL, _TOKENS["real"], 3070)
    return checks
