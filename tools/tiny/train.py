"""Trains lily-tiny: rows from `data.py`, the model of `model.py`, a wall-clock schedule.

Owns the loop, the learning-rate schedule, checkpoints and the log. The schedule is a function of
training seconds, not of steps, so that a run ends when the lent machine's time does; `state.pt`
carries everything to the next call.

    python train.py --data DIR --out DIR --preset tiny --total-s 1150 --call-s 540
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from config import PRESETS
from optim import Muon, Snapper, split_parameters
from tokenizers import Tokenizer
from torch import Tensor
from torch.nn import functional as F  # noqa: N812  (its usual name)

from model import Model

POOL = 8  # shards that are mixed before their rows are drawn
OTHER_WEIGHT = 0.15  # loss weight of what the user and the system say
MTP_WEIGHT = 0.2
BALANCE_WEIGHT = 0.01
WARMUP_STEPS = 150


class Rows:
    """Shards in order, a few at a time, shuffled; waits for those not yet written."""

    def __init__(self, folder: Path, device: torch.device, start: int) -> None:
        self.folder, self.device, self.next, self.epoch = folder, device, start, 0
        self.pool: Tensor | None = None
        self.at = 0

    def _load(self) -> Tensor:
        parts: list[np.ndarray] = []
        while len(parts) < POOL:
            path = self.folder / f"rows_{self.next:05d}.npy"
            if path.exists():
                parts.append(np.load(path))
                self.next += 1
            elif (self.folder / "done").exists():
                self.next, self.epoch = 0, self.epoch + 1
            else:
                time.sleep(0.2)
        rows = torch.from_numpy(np.concatenate(parts).astype(np.int16)).to(self.device)
        order = torch.randperm(len(rows), device=self.device)
        return rows[order]

    def fill(self) -> None:
        self.pool, self.at = self._load(), 0

    def batch(self, size: int) -> Tensor:
        if self.pool is None or self.at + size > len(self.pool):
            self.fill()
        assert self.pool is not None
        self.at += size
        return self.pool[self.at - size : self.at].long()


class Roles:
    """Which document a token belongs to, and how much predicting it counts."""

    def __init__(self, tok: Tokenizer) -> None:
        self.end, self.start = (tok.token_to_id(t) for t in ("<|endoftext|>", "<|im_start|>"))
        self.assistant = tok.encode("assistant", add_special_tokens=False).ids[0]

    def segments(self, rows: Tensor) -> Tensor:
        ended = F.pad((rows == self.end)[:, :-1], (1, 0))
        return ended.cumsum(1)

    def weights(self, rows: Tensor, segments: Tensor) -> Tensor:
        """1 for text and answers, less for questions, 0 for the first token of a document."""
        at = torch.arange(rows.shape[1], device=rows.device).expand_as(rows)
        opened = torch.where(rows == self.start, at, -1).cummax(1).values
        inside = (opened >= 0) & (segments.gather(1, opened.clamp_min(0)) == segments)
        role = rows.gather(1, (opened.clamp_min(0) + 1).clamp_max(rows.shape[1] - 1))
        answer = inside & (role == self.assistant) & (at >= opened + 3)
        weights = torch.where(answer | ~inside, 1.0, OTHER_WEIGHT)
        first = F.pad(segments[:, 1:] != segments[:, :-1], (1, 0), value=True)
        return weights.masked_fill(first, 0.0)


def losses(model: Model, rows: Tensor, roles: Roles) -> tuple[Tensor, Tensor, Tensor]:
    """(next-token loss, MTP loss, balance loss) of rows [B, T + 2]."""
    segments = roles.segments(rows)
    weights = roles.weights(rows, segments)
    ids, near, far = rows[:, :-2], rows[:, 1:-1], rows[:, 2:]
    inner = segments[:, :-2]
    hidden, balance = model.hidden(ids, inner)
    same = segments[:, 2:] == inner
    main = weighted(model.lm_head(hidden), near, weights[:, 1:-1])
    ahead = model.lm_head(model.look_ahead(hidden, near, inner))
    return main, weighted(ahead, far, weights[:, 2:] * same), balance


def weighted(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    each = F.cross_entropy(logits.float().flatten(0, 1), targets.flatten(), reduction="none")
    return (each * weights.flatten()).sum() / weights.sum()


def schedule(progress: float, step: int, plateau: float) -> float:
    """Warm-up, a plateau for a share of the time, then a straight line to zero."""
    falling = max(0.0, (1 - progress) / (1 - plateau))
    return min(1.0, (step + 1) / WARMUP_STEPS) * min(1.0, falling)


@torch.no_grad()
@torch.compiler.set_stance("force_eager")
def evaluate(model: Model, args: Any, roles: Roles, device: torch.device) -> dict[str, float]:
    """Plain mean loss over every token of the held-out rows that has a predecessor."""
    out: dict[str, float] = {}
    for path in sorted(args.data.glob("val_*.npy")):
        rows = torch.from_numpy(np.load(path).astype(np.int64)).to(device)
        total = count = 0.0
        for i in range(0, min(len(rows), args.eval_rows) - args.batch + 1, args.batch):
            part = rows[i : i + args.batch]
            segments = roles.segments(part)
            with autocast(device):
                logits = model.lm_head(model.hidden(part[:, :-2], segments[:, :-2])[0])
            keep = (segments[:, 1:-1] == segments[:, :-2]).flatten()
            each = F.cross_entropy(logits.float().flatten(0, 1), part[:, 1:-1].flatten(),
                                   reduction="none")  # fmt: skip
            total, count = total + each[keep].sum().item(), count + keep.sum().item()
        if count:
            out[path.stem[4:]] = round(total / count, 4)
    return out


def autocast(device: torch.device) -> torch.autocast:
    return torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda")


class Run:
    """Model, optimisers and counters of one training run."""

    def __init__(self, args: argparse.Namespace, device: torch.device) -> None:
        self.args, self.device = args, device
        torch.manual_seed(args.seed)
        self.model = Model(PRESETS[args.preset]).to(device)
        muon, decayed, plain = split_parameters(self.model)
        self.muon = Muon(muon)
        self.adam = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": args.decay}, {"params": plain, "weight_decay": 0}],
            lr=args.adam_lr, betas=(0.9, 0.95), fused=device.type == "cuda",
        )  # fmt: skip
        self.snapper = Snapper(self.model)
        self.step, self.spent, self.shard = 0, 0.0, 0
        self.path = args.out / "state.pt"
        if self.path.exists():
            self._resume()
        elif args.init:
            from safetensors.torch import load_file

            self.model.load_state_dict(load_file(str(args.init), device=str(device)))

    def _resume(self) -> None:
        state = torch.load(self.path, map_location=self.device, weights_only=False)
        self.model.load_state_dict(state["model"])
        self.muon.load_state_dict(state["muon"])
        self.adam.load_state_dict(state["adam"])
        self.step, self.spent, self.shard = state["step"], state["spent"], state["shard"]
        print(f"resumed at step {self.step} after {self.spent:.0f} s", flush=True)

    def save(self, spent: float, shard: int) -> None:
        state = {"model": self.model.state_dict(), "muon": self.muon.state_dict(),
                 "adam": self.adam.state_dict(), "step": self.step, "spent": spent,
                 "shard": shard}  # fmt: skip
        temporary = self.path.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.rename(self.path)

    def compile(self) -> None:
        for layer in [*self.model.model.layers, self.model.mtp.layers[0]]:
            layer.compile()

    def update(self, rows: Tensor, roles: Roles, progress: float) -> tuple[Tensor, Tensor, Tensor]:
        """One step; from `snap_from` on the forward pass sees 4-bit weights."""
        snapping = progress >= self.args.snap_from
        if snapping:
            self.snapper.snap()
        with autocast(self.device):
            main, ahead, balance = losses(self.model, rows, roles)
        (main + MTP_WEIGHT * ahead + BALANCE_WEIGHT * balance).backward()
        if snapping:
            self.snapper.restore()
        factor = schedule(progress, self.step, self.args.plateau)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.adam.param_groups:
            group["lr"] = self.args.adam_lr * factor
        self.adam.step()
        self.muon.step(self.args.muon_lr * factor, self.args.decay)
        self.adam.zero_grad(set_to_none=True)
        self.model.zero_grad(set_to_none=True)
        self.step += 1
        return main.detach(), ahead.detach(), balance.detach()


def loop(run: Run, roles: Roles, began: float) -> None:
    """Trains until the run's total or this call's share of seconds is spent."""
    args, device = run.args, run.device
    rows = Rows(args.data, device, run.shard)
    log = (args.out / "log.jsonl").open("a")
    rows.fill()  # the clock starts when there is something to learn
    start = mark = time.time()
    mean: float | None = None
    while True:
        spent = run.spent + time.time() - start
        progress = run.step / args.steps if args.steps else spent / args.total_s
        if progress >= 1 or time.time() - began > args.call_s:
            break
        batch = rows.batch(args.batch)[:, : args.row + 2]
        main, ahead, balance = run.update(batch, roles, progress)
        if run.step % args.log_every == 0:
            value = main.item()
            mean = value if mean is None else 0.9 * mean + 0.1 * value
            seconds, mark = (time.time() - mark) / args.log_every, time.time()
            record = {"step": run.step, "loss": round(value, 4), "mean": round(mean, 4),
                      "mtp": round(ahead.item(), 3), "balance": round(balance.item(), 3),
                      "progress": round(progress, 4), "shard": rows.next, "epoch": rows.epoch,
                      "tokens_per_s": round(args.batch * args.row / seconds)}  # fmt: skip
            log.write(json.dumps(record) + "\n")
            log.flush()
            print(record, flush=True)
        if run.step % args.eval_every == 0:
            print("eval", run.step, evaluate(run.model, args, roles, device), flush=True)
            run.save(run.spent + time.time() - start, rows.next)
            mark = time.time()
    spent = run.spent + time.time() - start
    run.save(spent, rows.next)
    finish(run, roles, spent)


@torch.no_grad()
def finish(run: Run, roles: Roles, spent: float) -> None:
    """Held-out losses, exact and 4-bit, and the weights in bfloat16."""
    from safetensors.torch import save_file

    exact = evaluate(run.model, run.args, roles, run.device)
    run.snapper.snap()
    snapped = evaluate(run.model, run.args, roles, run.device)
    run.snapper.restore()
    summary = {"step": run.step, "seconds": round(spent, 1), "held_out": exact,
               "held_out_4bit": snapped,
               "tokens": run.step * run.args.batch * run.args.row,
               "parameters": sum(p.numel() for p in run.model.parameters())}  # fmt: skip
    print("final", summary, flush=True)
    (run.args.out / "final.json").write_text(json.dumps(summary, indent=1))
    tensors = {k: v.detach().to("cpu", torch.bfloat16).contiguous()
               for k, v in run.model.state_dict().items()}  # fmt: skip
    save_file(tensors, str(run.args.out / "weights.safetensors"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--preset", choices=list(PRESETS), default="tiny")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--row", type=int, default=1024)
    parser.add_argument("--muon-lr", type=float, default=0.02)
    parser.add_argument("--adam-lr", type=float, default=3e-3)
    parser.add_argument("--decay", type=float, default=0.03)
    parser.add_argument("--total-s", type=float, default=1150)
    parser.add_argument("--call-s", type=float, default=1e9)
    parser.add_argument("--steps", type=int, default=0, help="a step schedule instead, for tests")
    parser.add_argument("--init", type=Path, help="weights.safetensors to start from")
    parser.add_argument("--plateau", type=float, default=0.4)
    parser.add_argument("--snap-from", type=float, default=0.6)
    parser.add_argument("--log-every", type=int, default=50)
    parser.add_argument("--eval-every", type=int, default=1000)
    parser.add_argument("--eval-rows", type=int, default=320)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-compile", action="store_true")
    args = parser.parse_args()
    began = time.time()
    args.out.mkdir(parents=True, exist_ok=True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.set_float32_matmul_precision("high")
    torch._dynamo.config.suppress_errors = True  # a failing compiler costs speed, not the run
    run = Run(args, device)
    if device.type == "cuda" and not args.no_compile:
        run.compile()
    count = sum(p.numel() for p in run.model.parameters())
    print(f"{args.preset}: {count / 1e6:.2f} M parameters on {device}", flush=True)
    loop(run, Roles(Tokenizer.from_file(str(args.data / "tokenizer.json"))), began)


if __name__ == "__main__":
    main()
