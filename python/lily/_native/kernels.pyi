"""Devices, tensors and single operations, for tests and benchmarks."""

from collections.abc import Sequence
from typing import Annotated

import numpy.typing
from numpy.typing import NDArray


class TensorBase:
    """What an operation sees of a tensor."""

class Tensor(TensorBase):
    """Dense rows in the memory of a device."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> str: ...

    def numpy(self) -> numpy.typing.NDArray:
        """A copy; bf16 and f16 as uint16."""

    def write(self, array: Annotated[NDArray, dict(order='C', device='cpu', writable=False)]) -> None:
        """Overwrites all elements."""

    def retyped(self, dtype: str) -> Tensor:
        """The same memory and shape, read as another type."""

    def part(self, offset: int, shape: Sequence[int]) -> Tensor:
        """
        The tensor of this shape that begins `offset` elements into this one's memory.
        """

class Matrix:
    """A stored weight [rows, cols], or a stack of experts."""

    def __init__(self, storage: str, weight: TensorBase, scales: TensorBase | None = None, biases: TensorBase | None = None, *, rows: int, cols: int, group_size: int = 0, experts: int = 1, expert_stride_rows: int = 0) -> None:
        """expert_stride_rows 0: experts stand `rows` apart."""

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def experts(self) -> int: ...

    @property
    def storage(self) -> str: ...

class Step:
    """Dispatches recorded for a device to run."""

    def __init__(self, device: Device | None = None, tiles: str = '') -> None:
        """
        Recorded with the tile sizes that suit the device, or of 'apple', 'apple_tensor' or 'nvidia'.
        """

    def describe(self) -> str:
        """One line for each dispatch."""

    def clear(self) -> None: ...

    def __len__(self) -> int: ...

class Device:
    """Where tensors live and steps run."""

    def __init__(self, name: str = 'cpu', threads: int = 0, isa: str = '') -> None: ...

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def activation_dtype(self) -> str: ...

    @property
    def weight_alignment_bytes(self) -> int: ...

    @property
    def memory_total_bytes(self) -> int:
        """What the device could hold in all."""

    @property
    def memory_available_bytes(self) -> int:
        """What it could still take now."""

    def facts(self) -> dict[str, str]:
        """
        What is enabled on this device and what is not, and the state its machine is in now.
        """

    def tensor(self, array: Annotated[NDArray, dict(order='C', device='cpu', writable=False)], dtype: str | None = None) -> Tensor:
        """
        A copy of a float32, uint32 or uint8 array, or of uint16 with dtype 'bf16' or 'f16'.
        """

    def zeros(self, shape: Sequence[int], dtype: str = 'f32') -> Tensor: ...

    def run(self, step: Step) -> None:
        """Runs the step and returns when it is done."""

    def time_us(self, step: Step, repeats: int) -> list[float]:
        """
        Microseconds of each of `repeats` runs of the step, by the device's own clock.
        """

CANDIDATES: int = 64

SAMPLE_BLOCK_ROWS: int = 1024

ATTENTION_MAX_SPLITS: int = 128

def isas() -> list[str]:
    """Instruction sets with CPU kernels that run here, best first."""

class AttentionTensors:
    """One attention layer's places."""

    def __init__(self, *, proj: TensorBase, q_gain: TensorBase, k_gain: TensorBase, inv_freq: TensorBase, k_cache: TensorBase, v_cache: TensorBase, q_heads: int, kv_heads: int, head_dim: int, rotary_dims: int, eps: float) -> None: ...

class DeltaTensors:
    """One gated-delta layer's places."""

    def __init__(self, *, proj: TensorBase, conv_weight: TensorBase, conv_ring: TensorBase, decay_rate: TensorBase, dt_bias: TensorBase, gain: TensorBase, state: TensorBase, key_heads: int, value_heads: int, key_dim: int, value_dim: int, eps: float) -> None: ...

class MoeWeights:
    """One mixture-of-experts layer's weights."""

    def __init__(self, *, router: Matrix, shared_router: Matrix, gate: Matrix, up: Matrix, down: Matrix, shared_gate: Matrix, shared_up: Matrix, shared_down: Matrix, slots: int) -> None: ...

def embed_rows(step: Step, hidden: TensorBase, ids: TensorBase, table: Matrix) -> None: ...

def norm_rms(step: Step, y: TensorBase, x: TensorBase, gain: TensorBase, eps: float) -> None: ...

def linear(step: Step, y: TensorBase, x: TensorBase, segments: Sequence[Matrix]) -> None: ...

def linear_add(step: Step, y: TensorBase, x: TensorBase, weight: Matrix) -> None: ...

def linear_norm(step: Step, y: TensorBase, x: TensorBase, gain: TensorBase, eps: float, segments: Sequence[Matrix]) -> None: ...

def rope_append(step: Step, q: TensorBase, layer: AttentionTensors, position: int) -> None: ...

def attention_prefill(step: Step, y: TensorBase, q: TensorBase, layer: AttentionTensors, position: int) -> None: ...

def attention_decode(step: Step, partial: TensorBase, layer: AttentionTensors, cursor: TensorBase) -> None: ...

def attention_merge(step: Step, y: TensorBase, partial: TensorBase, layer: AttentionTensors, cursor: TensorBase) -> None: ...

def delta_step(step: Step, y: TensorBase, next_state: TensorBase, layer: DeltaTensors, cursor: TensorBase) -> None: ...

def delta_conv(step: Step, qkv: TensorBase, gates: TensorBase, layer: DeltaTensors, position: int) -> None: ...

def delta_chunk(step: Step, y: TensorBase, qkv: TensorBase, gates: TensorBase, layer: DeltaTensors) -> None: ...

def sample_logits(step: Step, logits: TensorBase, blocks: TensorBase, x: TensorBase, gain: TensorBase, eps: float, lm_head: Matrix) -> None: ...

def sample_draw(step: Step, result: TensorBase, blocks: TensorBase, sampler: TensorBase, cursor: TensorBase, vocab: int) -> None: ...

def sample_score(step: Step, logprobs: TensorBase, best: TensorBase, logits: TensorBase, targets: TensorBase) -> None: ...

def moe_router(step: Step, logits: TensorBase, shared_act: TensorBase, x: TensorBase, gain: TensorBase, eps: float, moe: MoeWeights) -> None: ...

def moe_gate_up(step: Step, act: TensorBase, ids: TensorBase, weights: TensorBase, logits: TensorBase, x: TensorBase, gain: TensorBase, eps: float, moe: MoeWeights) -> None: ...

def moe_down(step: Step, residual: TensorBase, act: TensorBase, shared_act: TensorBase, logits: TensorBase, ids: TensorBase, weights: TensorBase, moe: MoeWeights) -> None: ...

def moe_route(step: Step, ids: TensorBase, weights: TensorBase, logits: TensorBase) -> None: ...

def moe_sort(step: Step, order: TensorBase, offsets: TensorBase, ids: TensorBase) -> None: ...

def moe_grouped_gate_up(step: Step, act: TensorBase, x: TensorBase, order: TensorBase, offsets: TensorBase, gate: Matrix, up: Matrix, slots: int) -> None: ...

def moe_grouped_down(step: Step, y: TensorBase, act: TensorBase, order: TensorBase, offsets: TensorBase, down: Matrix) -> None: ...

def moe_combine(step: Step, residual: TensorBase, y: TensorBase, shared: TensorBase, weights: TensorBase) -> None: ...

def encoder_embed(step: Step, y: TensorBase, hidden: TensorBase, positions: TensorBase, forms: TensorBase, position_table: TensorBase, form_table: TensorBase, gain: TensorBase, shift: TensorBase, eps: float) -> None: ...

def encoder_norm(step: Step, y: TensorBase, hidden: TensorBase, bias: TensorBase, gain: TensorBase, shift: TensorBase, eps: float) -> None: ...

def encoder_attention(step: Step, y: TensorBase, qkv: TensorBase, bias: TensorBase, offsets: TensorBase, heads: int, longest: int) -> None: ...

def encoder_gelu(step: Step, y: TensorBase, x: TensorBase, bias: TensorBase) -> None: ...

def encoder_pool(step: Step, y: TensorBase, hidden: TensorBase, offsets: TensorBase) -> None: ...
