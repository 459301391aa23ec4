"""All planted faults of the mutation test, and how one is run.

The lists by family stand in mutations_rows.py, mutations_layers.py, mutations_lanes.py,
mutations_prefill.py and mutations_tensor.py.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from tempfile import TemporaryDirectory

from metal import lint_kernels
from metal.mutations import ROOT, Fault, Outcome, Workshop
from metal.mutations_checks import CHECKS
from metal.mutations_encoder import ENCODER_FAULTS
from metal.mutations_lanes import LANE_FAULTS
from metal.mutations_layers import LAYER_FAULTS
from metal.mutations_prefill import PREFILL_FAULTS
from metal.mutations_rows import ROW_FAULTS
from metal.mutations_tensor import TENSOR_FAULTS

FAULTS = ROW_FAULTS + LAYER_FAULTS + ENCODER_FAULTS + LANE_FAULTS + PREFILL_FAULTS + TENSOR_FAULTS


def run_plain(shop: Workshop, name: str) -> Outcome:
    """A check of metal/ as it is."""
    return shop.run(name, CHECKS[name].source, CHECKS[name].kernels, None)


def run_fault(shop: Workshop, fault: Fault) -> Outcome:
    """A check of metal/ with a fault."""
    if fault.check == "lint":
        return run_lint(fault)
    check = CHECKS[fault.check]
    return shop.run(fault.check, check.source, check.kernels, fault)


def run_lint(fault: Fault) -> Outcome:
    """What the lint says: fibers see device memory as one thread does, and need no fences."""
    with TemporaryDirectory() as folder:
        metal = Path(folder) / "metal"
        shutil.copytree(ROOT / "metal", metal)
        fault.plant(metal)
        found = lint_kernels.check_kernels(metal / fault.file)
    return Outcome("lint", str(found[0])) if found else Outcome("passed", "")
