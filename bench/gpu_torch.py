"""What PyTorch does on the same GPU: the limits that shares are of, and how its calls are timed.

Calls are captured into a CUDA graph over several copies of their inputs, so that neither launches
nor a cache flatter or harm them. Without a GPU the same code runs on the processor, slowly: that
keeps it alive where there is none. Knows no kernel of Lily's.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

import torch

L2_BYTES = 60 << 20
ROTATION_BYTES = 4 * L2_BYTES
_LEAST_CALLS = 8
_COPY_BYTES, _SMALL_COPY_BYTES = 4 << 30, 1 << 20
_MATMUL, _SMALL_MATMUL = 8192, 128
_MMA_TURNS = 20_000  # about as long as a matrix product of 8192


class Lab:
    """PyTorch on one device, with random tensors and a clock."""

    def __init__(self, name: str, small: bool) -> None:
        self.device = torch.device(name)
        self.is_gpu = name == "cuda"
        self.small = small
        self.bandwidth_samples: list[float] = []
        self.matmul_samples: list[float] = []
        self.mma_sync_samples: list[float] = []

    def copies(self, moved_bytes: int) -> int:
        """How many sets of inputs a cache cannot hold."""
        return 1 if self.small else -(-ROTATION_BYTES // moved_bytes)

    def random(self, *shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        """Normal numbers."""
        return torch.randn(shape, device=self.device, dtype=dtype)

    def ids(self, below: int, *shape: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """Uniform indices."""
        return torch.randint(0, below, shape, device=self.device, dtype=dtype)

    def arm(self, call: Callable[[int], object], copies: int) -> Callable[[], float]:
        """Microseconds a call, where call(i) works on the i-th set of inputs."""
        count = max(copies, _LEAST_CALLS)
        if self.is_gpu:
            return self._graph_arm(call, copies, count)

        def measure() -> float:
            begin = time.perf_counter()
            for index in range(count):
                call(index % copies)
            return (time.perf_counter() - begin) / count * 1e6

        return measure

    def _graph_arm(
        self, call: Callable[[int], object], copies: int, count: int
    ) -> Callable[[], float]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                call(0)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for index in range(count):
                call(index % copies)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

        def measure(_inputs: object = call) -> float:
            # The graph reads the inputs that `call` holds, so they live as long as this does.
            times = []
            for _ in range(3):
                begin.record()
                graph.replay()
                end.record()
                end.synchronize()
                times.append(begin.elapsed_time(end) * 1e3 / count)
            return sorted(times)[1]

        return measure

    def measure_limits(self) -> None:
        """More samples of the device's copy bandwidth and of its bf16 matrix rates."""
        self.bandwidth_samples += self._copy_gb_per_s()
        self.matmul_samples += self._matmul_tflop_per_s()
        if self.is_gpu:
            self.mma_sync_samples += self._mma_sync_tflop_per_s()
        self.forget()

    def _copy_gb_per_s(self) -> list[float]:
        size = _SMALL_COPY_BYTES if self.small else _COPY_BYTES
        halves = torch.empty(2, size // 2, device=self.device, dtype=torch.bfloat16)
        halves[0].normal_()
        # A kernel: what a copy inside a graph becomes (a transfer by the copy engine) is slower.
        copy = self.arm(lambda _: torch.neg(halves[0], out=halves[1]), 1)
        # Read once and written once.
        return [2 * size / copy() / 1e3 for _ in range(5)]

    def _matmul_tflop_per_s(self) -> list[float]:
        edge = _SMALL_MATMUL if self.small else _MATMUL
        a, b = self.random(edge, edge), self.random(edge, edge)
        product = self.arm(lambda _: a @ b, 1)
        return [2 * edge**3 / product() / 1e6 for _ in range(5)]

    def _mma_sync_tflop_per_s(self) -> list[float]:
        """The rate of the instruction that Lily's kernels use, whose factors are in registers."""
        from bench.gpu_triton import MMA_FLOPS, MMA_THREADS, mma_sync

        programs = torch.cuda.get_device_properties(self.device).multi_processor_count
        factors = self.random(6 * MMA_THREADS, 2)
        out = torch.empty(programs * MMA_THREADS, device=self.device)
        product = self.arm(lambda _: mma_sync(factors, out, _MMA_TURNS), 1)
        flops = programs * MMA_THREADS // 32 * _MMA_TURNS * MMA_FLOPS
        return [flops / product() / 1e6 for _ in range(5)]

    def limits(self) -> dict[str, Any]:
        """The best samples, so that shares err on the low side."""
        limits = {
            "copy_gb_per_s": max(self.bandwidth_samples),
            "bf16_matmul_tflop_per_s": max(self.matmul_samples),
            "copy_samples": self.bandwidth_samples,
            "matmul_samples": self.matmul_samples,
            "how": f"torch {torch.__version__}: a kernel that reads and writes 4 GiB; "
            "8192 x 8192 x 8192, random numbers; mma.sync m16n8k16 of bf16 from registers alone",
        }
        if self.mma_sync_samples:
            limits["mma_sync_tflop_per_s"] = max(self.mma_sync_samples)
            limits["mma_sync_samples"] = self.mma_sync_samples
        return limits

    def forget(self) -> None:
        """Hand memory back, where the device still answers."""
        if self.is_gpu:
            with contextlib.suppress(RuntimeError):
                torch.cuda.empty_cache()
