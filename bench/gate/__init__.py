"""How well the privacy gate finds and decides, beside Presidio; `python -m bench.gate`."""
