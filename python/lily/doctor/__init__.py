"""``lily doctor``: whether the kernels of this machine's devices give right numbers, and how fast.

Every check runs in a child process under a watchdog, so that a kernel that hangs or kills its
process becomes a finding and not the end. `cases_*` own what is checked, `reference` what is right,
`examine` the order of things, `verdict` and `show` what is said about it.

The CPU device is compared with NumPy in float64, every other device with the CPU device. Not with
another instruction set: on Apple Silicon there is but one, and two compilations of one source share
its mistakes. This package runs from an installed wheel: it needs NumPy and `lily._native`, nothing
of the repository.
"""
