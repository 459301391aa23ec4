"""The benchmark harness: kernels, engine, load and peers, run with ``python -m bench``.

Repository tooling, not part of the package. See README.md in this folder.
"""
