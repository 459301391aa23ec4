"""Trains the gate's model on one GPU while worker processes write its text.

This file owns the losses, the wall-clock schedule and the checkpoint. It knows no data set. One
run is
`--seconds` long; a `--checkpoint` that is there is continued, its seconds counted.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from pathlib import Path
from queue import Empty
from typing import Any

import data
import labels
import numpy as np
import targets
import torch
import transport
from tokenizers import Tokenizer
from torch.nn import functional

from model import GateModel

BUCKETS, SHOW = 4, 200
MASK_ID = 103
TOPIC_DOUBT, SUBJECT_DOUBT = 0.01, 0.03  # label smoothing
LOSSES = ("token", "topic", "subject")


def produce(queue: Any, pools: Path, public: Path, tokenizer: Path, rows: int, seed: int) -> None:
    """A worker: steps of its own stream, for ever."""
    os.nice(5)
    torch.set_num_threads(1)
    stream = data.Stream(pools, public, seed)
    reader = Tokenizer.from_file(str(tokenizer))
    while True:
        queue.put(data.step_arrays(stream, reader, rows, BUCKETS))


def to_device(batch: dict[str, np.ndarray], device: torch.device) -> dict[str, torch.Tensor]:
    """The batch as the network takes it, with `mask`."""
    out = {
        name: torch.from_numpy(value).to(device, non_blocking=True).long()
        for name, value in batch.items()
    }
    out["mask"] = (
        torch.arange(out["ids"].shape[1], device=device)[None] < out.pop("lengths")[:, None]
    )
    return out


def losses(model: GateModel, batch: dict[str, torch.Tensor], allowed: torch.Tensor) -> torch.Tensor:
    """[3 sums, 3 counts] of LOSSES over one batch.

    The token loss is minus the log of the probability of all tags that are not wrong there.
    """
    tokens, document = model(batch["ids"], batch["forms"], batch["mask"])
    known = (batch["targets"] != targets.OUTSIDE["anything"]).float()
    log_p = functional.log_softmax(tokens.float(), -1)
    token = -torch.logsumexp(log_p + allowed[batch["targets"]], -1) * known
    n = len(labels.TOPICS)
    sure = (batch["topics"] >= 0).float()
    wanted = batch["topics"].clamp(min=0).float() * (1 - 2 * TOPIC_DOUBT) + TOPIC_DOUBT
    topic = functional.binary_cross_entropy_with_logits(
        document[:, :n].float(), wanted, sure, reduction="sum"
    )
    has = batch["subject"] >= 0
    subject = functional.cross_entropy(
        document[:, n:].float(),
        batch["subject"],
        reduction="sum",
        ignore_index=-1,
        label_smoothing=SUBJECT_DOUBT,
    )
    counts = torch.stack([known.sum(), sure.sum(), has.float().sum()])
    return torch.cat([torch.stack([token.sum(), topic, subject]), counts])


def hide(batch: dict[str, torch.Tensor], share: float) -> None:
    """Puts [MASK] for a share of the tokens, so that context counts as much as the word."""
    hidden = (torch.rand(batch["ids"].shape, device=batch["ids"].device) < share) & batch["mask"]
    hidden[:, 0] = False
    batch["ids"] = batch["ids"].masked_fill(hidden, MASK_ID)


def groups(model: GateModel, rate: float) -> list[dict[str, Any]]:
    """Heads and the form table learn faster than what is pre-trained; vectors do not decay."""
    fresh = ("token.", "document.", "embeddings.form")
    out: dict[tuple[bool, bool], list[torch.nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        out.setdefault((name.startswith(fresh), parameter.ndim > 1), []).append(parameter)
    return [
        {
            "params": some,
            "base": rate * (4 if new else 1),
            "lr": 0.0,
            "weight_decay": 0.01 if matrix else 0.0,
        }
        for (new, matrix), some in out.items()
    ]


def rate_at(progress: float) -> float:
    """Warm-up over 4 %, then linear to zero."""
    return progress / 0.04 if progress < 0.04 else max(0.0, (1 - progress) / 0.96)


class Trainer:
    """Model, optimiser and clock of one run."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = GateModel(labels.TAGS, len(labels.TOPICS), len(labels.SUBJECTS)).to(
            self.device
        )
        self.model.load_state_dict(transport.unpack(args.backbone.read_bytes()), strict=False)
        self.model.dropout = args.dropout
        self.optimiser = torch.optim.AdamW(
            groups(self.model, args.rate), betas=(0.9, 0.98), fused=True
        )
        self.allowed = torch.from_numpy(targets.TABLE).to(self.device).clamp(min=1e-9).log()
        self.spent, self.steps = 0.0, 0
        self.log: list[dict[str, float]] = []
        self.weights = torch.tensor([1.0, 2.0, 0.5], device=self.device)
        if args.checkpoint.exists():
            saved = torch.load(args.checkpoint, map_location=self.device, weights_only=True)
            self.model.load_state_dict(saved["model"])
            self.optimiser.load_state_dict(saved["optimiser"])
            self.spent, self.steps = saved["spent"], saved["steps"]

    def step(self, batches: list[dict[str, np.ndarray]], progress: float) -> torch.Tensor:
        """One update; returns the summed losses and counts."""
        for group in self.optimiser.param_groups:
            group["lr"] = group["base"] * rate_at(progress)
        known = sum(int((b["targets"] != targets.OUTSIDE["anything"]).sum()) for b in batches)
        sure = sum(int((b["topics"] >= 0).sum()) for b in batches)
        has = sum(int((b["subject"] >= 0).sum()) for b in batches)
        scale = self.weights / torch.tensor([known, sure, has], device=self.device).clamp(min=1)
        total = torch.zeros(6, device=self.device)
        for arrays in batches:
            batch = to_device(arrays, self.device)
            hide(batch, self.args.hide)
            with torch.autocast(self.device.type, torch.bfloat16):
                sums = losses(self.model, batch, self.allowed)
            (sums[:3] * scale).sum().backward()
            total += sums.detach()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        return total

    def run(self, queue: Any) -> None:
        """Steps until the clock says stop."""
        self.model.train()
        begin, total, shown = time.monotonic() - self.spent, torch.zeros(6, device=self.device), 0
        while (spent := time.monotonic() - begin) < self.args.seconds:
            try:
                arrays = queue.get(timeout=60)
            except Empty:  # every worker has died; what was learned is kept
                print("no text for 60 s, stopping early", flush=True)
                break
            total += self.step(arrays, spent / self.args.seconds)
            self.steps += 1
            shown += 1
            if shown == SHOW:
                sums = total.tolist()
                entry = {name: sums[i] / max(1, sums[3 + i]) for i, name in enumerate(LOSSES)}
                self.log.append({"step": self.steps, "seconds": spent, **entry})
                print(json.dumps({k: round(v, 4) for k, v in self.log[-1].items()}), flush=True)
                total.zero_()
                shown = 0
        self.spent = time.monotonic() - begin

    def save(self) -> None:
        """Checkpoint for a next call, packed weights for the way back, metrics."""
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}
        torch.save({**state, "spent": self.spent, "steps": self.steps}, self.args.checkpoint)
        transport.write_parts(
            transport.pack(self.model.state_dict()), self.args.out / f"{self.args.name}.npz"
        )

    @torch.no_grad()
    def check(self, queue: Any) -> dict[str, float]:
        """Losses on fresh text in float32, and by the packed weights, which must agree."""
        self.model.eval()
        steps = [queue.get(timeout=60) for _ in range(8)]
        result: dict[str, float] = {}
        for kind in ("float32", "packed"):
            if kind == "packed":
                self.model.load_state_dict(
                    transport.unpack(transport.pack(self.model.state_dict()))
                )
            total = torch.zeros(6, device=self.device)
            for arrays in (one for step in steps for one in step):
                total += losses(self.model, to_device(arrays, self.device), self.allowed)
            sums = total.tolist()
            result |= {
                f"{kind}_{name}": sums[i] / max(1, sums[3 + i]) for i, name in enumerate(LOSSES)
            }
        return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--carry",
        type=Path,
        required=True,
        help="backbone.npz, pools.json.gz, tokenizer.json, public/",
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--name", default="gate")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--workers", type=int, default=14)
    parser.add_argument("--rows", type=int, default=1024, help="windows of a step")
    parser.add_argument("--rate", type=float, default=3e-4)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--hide", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoint", type=Path)
    args = parser.parse_args()
    args.backbone = args.carry / "backbone.npz"
    args.checkpoint = args.checkpoint or args.out.parent / f"{args.name}.checkpoint"
    torch.manual_seed(args.seed)
    torch.set_float32_matmul_precision("high")
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    queue: Any = multiprocessing.get_context("fork").Queue(64)
    paths = (args.carry / "pools.json.gz", args.carry / "public", args.carry / "tokenizer.json")
    workers = [
        multiprocessing.get_context("fork").Process(
            target=produce, args=(queue, *paths, args.rows, 1000 * args.seed + i), daemon=True
        )
        for i in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    trainer = Trainer(args)
    trainer.run(queue)
    trainer.save()
    metrics = {
        "steps": trainer.steps,
        "seconds": trainer.spent,
        "log": trainer.log,
        "check": trainer.check(queue),
    }
    settings = {k: v for k, v in vars(args).items() if isinstance(v, (int, float, str))}
    (args.out / f"{args.name}.json").write_text(
        json.dumps(metrics | {"settings": settings}, indent=1)
    )
    print(json.dumps(metrics["check"]), trainer.steps, "steps")
    for worker in workers:
        worker.terminate()


if __name__ == "__main__":
    main()
