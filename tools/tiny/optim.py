"""The optimiser: Muon for the inner matrices, AdamW for the rest, and 4-bit-aware snapping.

Owns the split of parameters, the Newton-Schulz iteration and `Snapper`, which makes the forward
pass see the weights as the shipped 4-bit file will hold them (straight-through: the gradient is
taken there and applied to the exact weights). Knows nothing of data.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor, nn

ADAM_ONLY = ("embed_tokens", "lm_head", "mlp.gate.weight", "shared_expert_gate", "in_proj_a",
             "in_proj_b", "conv1d")  # fmt: skip


def newton_schulz(g: Tensor, steps: int = 5) -> Tensor:
    """A matrix near the orthogonal factor of each [.., m, n] slice (Keller Jordan's quintic)."""
    x = g.bfloat16() if g.is_cuda else g.float()
    tall = x.shape[-2] > x.shape[-1]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if tall else x


class Muon:
    """Momentum whose update is orthogonalised; matrices of one shape go through in one stack."""

    def __init__(self, params: list[nn.Parameter], momentum: float = 0.95) -> None:
        self.momentum = momentum
        self.groups: dict[tuple[int, ...], list[nn.Parameter]] = defaultdict(list)
        for p in params:
            self.groups[tuple(p.shape)].append(p)
        self.buffers = {shape: torch.stack([torch.zeros_like(p) for p in ps])
                        for shape, ps in self.groups.items()}  # fmt: skip

    @torch.no_grad()
    def step(self, lr: float, decay: float) -> None:
        for shape, params in self.groups.items():
            grad = torch.stack([p.grad for p in params])
            buffer = self.buffers[shape].lerp_(grad, 1 - self.momentum)
            update = newton_schulz(grad.lerp(buffer, self.momentum)).float()
            # Experts are stacks of [2 * inner, hidden] or [hidden, inner] matrices.
            scale = max(1.0, shape[-2] / shape[-1]) ** 0.5
            torch._foreach_mul_(params, 1 - lr * decay)
            torch._foreach_add_(params, list((update * (-lr * scale)).unbind(0)))

    def state_dict(self) -> dict[str, Tensor]:
        return {str(k): v for k, v in self.buffers.items()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        for shape in self.buffers:
            self.buffers[shape].copy_(state[str(shape)])


def split_parameters(model: nn.Module) -> tuple[list, list, list]:
    """(Muon matrices, AdamW with decay, AdamW without)."""
    muon, decayed, plain = [], [], []
    for name, p in model.named_parameters():
        if p.dim() < 2 or "conv1d" in name:
            plain.append(p)
        elif any(part in name for part in ADAM_ONLY):
            decayed.append(p)
        else:
            muon.append(p)
    return muon, decayed, plain


def fake_quantize(w: Tensor, bits: int, group: int = 64) -> Tensor:
    """What MLX's affine quantisation makes of w, dequantised; arithmetic as in MLX."""
    rows = w.bfloat16().float().reshape(-1, group)
    low, high = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    flip = low.abs() > high.abs()
    scale = ((high - low) / (2**bits - 1)).clamp_min(1e-7)
    scale = torch.where(flip, scale, -scale)
    edge = torch.where(flip, low, high)
    q0 = torch.round(edge / scale)
    scale = torch.where(q0 != 0, edge / torch.where(q0 != 0, q0, 1.0), scale)
    bias = torch.where(q0 != 0, edge, 0.0)
    q = torch.round((rows - bias) / scale).clamp(0, 2**bits - 1)
    return (q * scale.bfloat16().float() + bias.bfloat16().float()).reshape(w.shape)


class Snapper:
    """Swaps quantised values in for a forward and backward pass, and the exact ones back."""

    def __init__(self, model: nn.Module) -> None:
        self.params: list[tuple[nn.Parameter, int]] = []
        for name, p in model.named_parameters():
            if p.dim() >= 2 and "conv1d" not in name and p.shape[-1] % 64 == 0:
                eight = "mlp.gate.weight" in name or "shared_expert_gate" in name
                self.params.append((p, 8 if eight or name.startswith("mtp.") else 4))
        self.exact: list[Tensor] = []

    @torch.no_grad()
    def snap(self) -> None:
        self.exact = [p.detach().clone() for p, _ in self.params]
        for p, bits in self.params:
            p.copy_(fake_quantize(p, bits))

    @torch.no_grad()
    def restore(self) -> None:
        torch._foreach_copy_([p.data for p, _ in self.params], self.exact)
        self.exact = []
