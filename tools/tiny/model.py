"""Qwen3.6-MoE in plain PyTorch, for training: parameter names and shapes equal Hugging Face's.

Owns the forward pass (gated delta net in chunks, gated attention, dense-dispatch MoE, MTP head)
and the initialisation. Several documents may share a row: `segments` keeps them apart, in the
attention mask and by wiping the recurrent state. Knows nothing of data files or optimisers.
"""

from __future__ import annotations

import math

import torch
from config import Shape
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812  (its usual name)

CHUNK = 64
WIPE = -30.0  # log decay at a document's first token: e^-30 of the old state is left


class ZeroCentredNorm(nn.Module):
    """RMSNorm with gain 1 + w."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(dim))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (y * (1 + self.weight.float())).type_as(x)


class GatedNorm(nn.Module):
    """RMSNorm(x) * w * silu(gate), the delta net's output norm."""

    def __init__(self, dim: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))
        self.eps = eps

    def forward(self, x: Tensor, gate: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + self.eps)
        return (self.weight * y * F.silu(gate.float())).type_as(gate)


def linear(inputs: int, outputs: int) -> nn.Linear:
    return nn.Linear(inputs, outputs, bias=False)


def unit_lower_inverse(a: Tensor) -> Tensor:
    """(I + a)^-1 for strictly lower triangular a whose size is a power of two."""
    n = a.shape[-1]
    if n <= 16:
        power, total, k = -a, torch.eye(n, device=a.device, dtype=a.dtype) - a, 2
        while k < n:
            power = power @ power
            total = total + total @ power
            k *= 2
        return total
    h = n // 2
    both = unit_lower_inverse(torch.stack([a[..., :h, :h], a[..., h:, h:]], 0))
    corner = -(both[1] @ (a[..., h:, :h] @ both[0]))
    top = torch.cat([both[0], torch.zeros_like(corner)], -1)
    return torch.cat([top, torch.cat([corner, both[1]], -1)], -2)


def l2norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).sum(-1, keepdim=True) + 1e-6)


def chunked_delta_rule(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor) -> Tensor:
    """The gated delta rule over [B, T, H, D] inputs, `CHUNK` tokens at a time, in float32."""
    batch, length, heads, dk = k.shape
    pad = -length % CHUNK

    def split(x: Tensor) -> Tensor:
        x = F.pad(x.transpose(1, 2), (0, 0, 0, pad))
        return x.reshape(batch, heads, -1, CHUNK, x.shape[-1])

    q, k, v = split(l2norm(q) * dk**-0.5), split(l2norm(k)), split(v)
    beta = split(beta[..., None])
    g = split(g[..., None])[..., 0].cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (g[..., :, None] - g[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    kb = k * beta
    inverse = unit_lower_inverse(((kb @ k.transpose(-1, -2)) * decay).tril(-1))
    u = inverse @ (v * beta)
    w = inverse @ (kb * g.exp()[..., None])
    inside = (q @ k.transpose(-1, -2)) * decay
    q_in = q * g.exp()[..., None]
    last = g[..., -1:]
    k_out = (k * (last - g).exp()[..., None]).transpose(-1, -2)
    keep = last.exp()[..., None]
    state = q.new_zeros(batch, heads, dk, v.shape[-1])
    outputs = []
    for i in range(q.shape[2]):
        fresh = u[:, :, i] - w[:, :, i] @ state
        outputs.append(q_in[:, :, i] @ state + inside[:, :, i] @ fresh)
        state = state * keep[:, :, i] + k_out[:, :, i] @ fresh
    out = torch.stack(outputs, 2).reshape(batch, heads, -1, v.shape[-1])
    return out[:, :, :length].transpose(1, 2)


class DeltaNet(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s = s
        self.key_dim = s.linear_num_key_heads * s.linear_key_head_dim
        self.value_dim = s.linear_num_value_heads * s.linear_value_head_dim
        channels, heads = 2 * self.key_dim + self.value_dim, s.linear_num_value_heads
        self.conv1d = nn.Conv1d(channels, channels, s.linear_conv_kernel_dim, groups=channels,
                                bias=False)  # fmt: skip
        self.A_log = nn.Parameter(torch.empty(heads).uniform_(0.01, 16).log())
        # Time constants from 1e-3 to 1e-1 (as in Mamba): with HF's ones it forgets too quickly.
        dt = torch.exp(torch.rand(heads) * math.log(100) + math.log(1e-3))
        self.dt_bias = nn.Parameter(dt + torch.log(-torch.expm1(-dt)))
        self.norm = GatedNorm(s.linear_value_head_dim, s.rms_norm_eps)
        self.in_proj_qkv = linear(s.hidden_size, channels)
        self.in_proj_z = linear(s.hidden_size, self.value_dim)
        self.in_proj_b = linear(s.hidden_size, heads)
        self.in_proj_a = linear(s.hidden_size, heads)
        self.out_proj = linear(self.value_dim, s.hidden_size)

    def _convolve(self, x: Tensor, segments: Tensor) -> Tensor:
        """The causal depthwise convolution, tap by tap, so that no tap reaches another document."""
        length, taps = x.shape[1], self.s.linear_conv_kernel_dim
        weight = self.conv1d.weight[:, 0].to(x.dtype)
        out = x * weight[:, taps - 1]
        for back in range(1, taps):
            shifted = F.pad(x, (0, 0, back, 0))[:, :length]
            same = F.pad(segments, (back, 0), value=-1)[:, :length] == segments
            out = out + shifted * weight[:, taps - 1 - back] * same[..., None]
        return out

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], segments: Tensor) -> Tensor:
        s, (batch, length, _) = self.s, x.shape
        mixed = F.silu(self._convolve(self.in_proj_qkv(x), segments))
        q, k, v = mixed.split([self.key_dim, self.key_dim, self.value_dim], -1)
        repeat = s.linear_num_value_heads // s.linear_num_key_heads
        q = q.reshape(batch, length, -1, s.linear_key_head_dim).repeat_interleave(repeat, 2)
        k = k.reshape(batch, length, -1, s.linear_key_head_dim).repeat_interleave(repeat, 2)
        v = v.reshape(batch, length, -1, s.linear_value_head_dim)
        beta = self.in_proj_b(x).float().sigmoid()
        g = -self.A_log.float().exp() * F.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        first = segments[:, 1:] != segments[:, :-1]
        first = F.pad(first, (1, 0), value=True)
        g = torch.where(first[..., None], WIPE, g)
        with torch.autocast(x.device.type, enabled=False):
            out = chunked_delta_rule(q.float(), k.float(), v.float(), g, beta)
        gate = self.in_proj_z(x).reshape(batch, length, -1, s.linear_value_head_dim)
        return self.out_proj(self.norm(out, gate).reshape(batch, length, -1))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """RoPE on the first dimensions of each head, half-split pairs."""
    n = cos.shape[-1]
    head, tail = x[..., :n], x[..., n:]
    a, b = head.chunk(2, -1)
    turned = head * cos + torch.cat([-b, a], -1) * sin
    return torch.cat([turned.to(x.dtype), tail], -1)


class Attention(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s = s
        self.q_proj = linear(s.hidden_size, s.num_attention_heads * s.head_dim * 2)
        self.k_proj = linear(s.hidden_size, s.num_key_value_heads * s.head_dim)
        self.v_proj = linear(s.hidden_size, s.num_key_value_heads * s.head_dim)
        self.o_proj = linear(s.num_attention_heads * s.head_dim, s.hidden_size)
        self.q_norm = ZeroCentredNorm(s.head_dim, s.rms_norm_eps)
        self.k_norm = ZeroCentredNorm(s.head_dim, s.rms_norm_eps)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor], segments: Tensor) -> Tensor:
        s, (batch, length, _), d = self.s, x.shape, self.s.head_dim
        q, gate = self.q_proj(x).view(batch, length, -1, 2 * d).chunk(2, -1)
        q = rotate(self.q_norm(q).transpose(1, 2), *rope)
        k = rotate(self.k_norm(self.k_proj(x).view(batch, length, -1, d)).transpose(1, 2), *rope)
        v = self.v_proj(x).view(batch, length, -1, d).transpose(1, 2)
        repeat = s.num_attention_heads // s.num_key_value_heads
        k, v = k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1)
        # Two heads only: the plain form is cheap, takes any mask and compiles everywhere.
        same = segments[:, None, :, None] == segments[:, None, None, :]
        causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
        scores = (q @ k.transpose(-1, -2)).float() * d**-0.5
        scores = scores.masked_fill(~(same & causal), float("-inf"))
        out = scores.softmax(-1).to(v.dtype) @ v
        out = out.transpose(1, 2).reshape(batch, length, -1)
        return self.o_proj(out * torch.sigmoid(gate.reshape(batch, length, -1)))


class Mlp(nn.Module):
    def __init__(self, hidden: int, inner: int) -> None:
        super().__init__()
        self.gate_proj, self.up_proj = linear(hidden, inner), linear(hidden, inner)
        self.down_proj = linear(inner, hidden)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Weight(nn.Module):
    """A bare `weight`, for the router's name `gate.weight`."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(*shape))


class Experts(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        n, inner, hidden = s.num_experts, s.moe_intermediate_size, s.hidden_size
        self.gate_up_proj = nn.Parameter(torch.zeros(n, 2 * inner, hidden))
        self.down_proj = nn.Parameter(torch.zeros(n, hidden, inner))


class Moe(nn.Module):
    """Every expert sees every token, and unchosen ones weigh nothing: two large products."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s = s
        self.gate = Weight(s.num_experts, s.hidden_size)
        self.experts = Experts(s)
        self.shared_expert = Mlp(s.hidden_size, s.shared_expert_intermediate_size)
        self.shared_expert_gate = linear(s.hidden_size, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        s, shape = self.s, x.shape
        n, inner = s.num_experts, s.moe_intermediate_size
        x = x.reshape(-1, s.hidden_size)
        with torch.autocast(x.device.type, enabled=False):
            p = F.linear(x.float(), self.gate.weight.float()).softmax(-1)
        top, chosen = p.topk(s.num_experts_per_tok, -1)
        share = torch.zeros_like(p).scatter(1, chosen, top / top.sum(-1, keepdim=True))
        load = (share > 0).float().mean(0)
        balance = n * (load * p.mean(0)).sum() / s.num_experts_per_tok
        up = F.linear(x, self.experts.gate_up_proj.reshape(n * 2 * inner, -1)).view(-1, n, 2, inner)
        act = F.silu(up[:, :, 0]) * up[:, :, 1] * share[..., None].to(up.dtype)
        down = self.experts.down_proj.permute(1, 0, 2).reshape(s.hidden_size, n * inner)
        y = F.linear(act.reshape(-1, n * inner), down)
        y = y + torch.sigmoid(self.shared_expert_gate(x)) * self.shared_expert(x)
        return y.view(shape), balance


class Layer(nn.Module):
    def __init__(self, s: Shape, kind: str) -> None:
        super().__init__()
        if kind == "linear_attention":
            self.linear_attn = DeltaNet(s)
        else:
            self.self_attn = Attention(s)
        self.mlp = Moe(s)
        self.input_layernorm = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)
        self.post_attention_layernorm = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)

    def forward(
        self, x: Tensor, cos: Tensor, sin: Tensor, segments: Tensor
    ) -> tuple[Tensor, Tensor]:
        mixer = self.linear_attn if hasattr(self, "linear_attn") else self.self_attn
        x = x + mixer(self.input_layernorm(x), (cos, sin), segments)
        y, balance = self.mlp(self.post_attention_layernorm(x))
        return x + y, balance


class Mtp(nn.Module):
    """Predicts one token further from [norm(embedding of t+1) | norm(hidden of t)]."""

    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.fc = linear(2 * s.hidden_size, s.hidden_size)
        self.pre_fc_norm_embedding = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)
        self.pre_fc_norm_hidden = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)
        self.layers = nn.ModuleList([Layer(s, "full_attention")])
        self.norm = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)


class Body(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(s.vocab_size, s.hidden_size)
        self.layers = nn.ModuleList([Layer(s, kind) for kind in s.layer_types])
        self.norm = ZeroCentredNorm(s.hidden_size, s.rms_norm_eps)


class Model(nn.Module):
    def __init__(self, s: Shape) -> None:
        super().__init__()
        self.s = s
        self.model = Body(s)
        self.lm_head = linear(s.hidden_size, s.vocab_size)
        self.mtp = Mtp(s)
        self._init()

    def _init(self) -> None:
        base = 0.02 * (256 / self.s.hidden_size) ** 0.5
        outputs = ("o_proj.weight", "out_proj.weight", "down_proj.weight", "down_proj")
        for name, p in self.named_parameters():
            if p.dim() >= 2 and "conv1d" not in name:
                depth = math.sqrt(2 * self.s.num_hidden_layers) if name.endswith(outputs) else 1
                nn.init.normal_(p, 0, base / depth)

    def rope(self, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
        n = int(self.s.head_dim * self.s.partial_rotary_factor)
        exponent = torch.arange(0, n, 2, device=device).float() / n
        angle = torch.arange(length, device=device).float()[:, None] / self.s.rope_theta**exponent
        angle = torch.cat([angle, angle], -1)
        return angle.cos(), angle.sin()

    def hidden(self, ids: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
        """(hidden states after the final norm, mean balance loss)."""
        x = self.model.embed_tokens(ids)
        cos, sin = self.rope(ids.shape[1], ids.device)
        total = x.new_zeros(())
        for layer in self.model.layers:
            x, balance = layer(x, cos, sin, segments)
            total = total + balance
        return self.model.norm(x), total / len(self.model.layers)

    def look_ahead(self, hidden: Tensor, following: Tensor, segments: Tensor) -> Tensor:
        """The MTP head's hidden states; `following` holds the next tokens."""
        m = self.mtp
        e = self.model.embed_tokens(following)
        y = m.fc(torch.cat([m.pre_fc_norm_embedding(e), m.pre_fc_norm_hidden(hidden)], -1))
        y, _ = m.layers[0](y, *self.rope(following.shape[1], y.device), segments)
        return m.norm(y)

    def forward(self, ids: Tensor, segments: Tensor | None = None) -> Tensor:
        """Logits, for evaluation and sampling."""
        if segments is None:
            segments = torch.zeros_like(ids)
        return self.lm_head(self.hidden(ids, segments)[0])
