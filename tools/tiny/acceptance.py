"""How often the MTP head's first draft token is the token that the model itself would take next.

Owns the measure: a held-out text is given, at each position the head sees the hidden state and the
token that follows, and drafts the one after; it is accepted if it is the model's greedy choice
there. Runs the training code in float32 on the bfloat16 folder that `export.py` writes.

    python acceptance.py HF_DIR
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
from config import PRESETS
from safetensors.torch import load_file
from tokenizers import Tokenizer
from torch import Tensor
from train import Roles

from model import Model

HERE = Path(__file__).parent
CONTEXT = 1024  # tokens of a document that are looked at: what the model was trained on


def load(folder: Path) -> Model:
    model = Model(PRESETS["tiny"])
    tensors = load_file(str(folder / "model.safetensors"))
    model.load_state_dict({k.replace("model.language_model.", "model.", 1): v.float()
                           for k, v in tensors.items()})  # fmt: skip
    return model.eval()


def accepted(model: Model, ids: Tensor) -> Tensor:
    """Whether each draft for `ids[2:]` is the model's greedy token after the text before it."""
    one = torch.zeros_like(ids[:, :-1])
    hidden, _ = model.hidden(ids[:, :-1], one)
    greedy = model.lm_head(hidden).argmax(-1)
    draft = model.lm_head(model.look_ahead(hidden, ids[:, 1:], one)).argmax(-1)
    return (draft[:, :-1] == greedy[:, 1:])[0]


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("hf", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)  # the texts are short: more threads wait for each other
    model, tok = load(args.hf), Tokenizer.from_file(str(args.hf / "tokenizer.json"))
    roles = Roles(tok)
    for path in sorted((HERE / "held_out").glob("*.jsonl")):
        right, answers = [], []
        for row in path.read_text(encoding="utf-8").splitlines():
            ids = torch.tensor([tok.encode(json.loads(row)["text"]).ids[:CONTEXT]])
            if ids.shape[1] < 4:
                continue
            right.append(accepted(model, ids))
            weights = roles.weights(ids, torch.zeros_like(ids))[0]
            answers.append(weights[2:] == 1)
        hits, inside = torch.cat(right), torch.cat(answers)
        print(
            f"{path.stem}: {hits.float().mean():.1%} of {len(hits):,} first drafts accepted; "
            f"{hits[inside].float().mean():.1%} of the {inside.sum():,} in answers or plain text"
        )


if __name__ == "__main__":
    main()
