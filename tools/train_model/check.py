#!/usr/bin/env python3
"""Checks the recipe in about a minute, on made-up words and without a download. It needs torch and sentencepiece, so it is no
part of `make test`. Says what failed, and exits with 1.
"""

import pathlib
import random
import struct
import sys
import tempfile

import torch

import circuit
import corpus
import export
import facts
import llama
import train

PROMPTS = 10


def made_up_books(rng: random.Random) -> dict[str, list[str]]:
    """Paragraphs of invented words; `newton` takes other words than `train`."""
    syllables = [a + b for a in "bcdfghklmnprstvw" for b in ("a", "e", "i", "o", "u", "ar", "en", "ol")]
    words = sorted({"".join(rng.choices(syllables, k=rng.choice([1, 2, 2, 3]))) for _ in range(6000)})
    rng.shuffle(words)
    names = [word.capitalize() + "x" for word in words[:60]]  # no word of the text ends like this

    def paragraph(some: list[str]) -> str:
        few_or_all = lambda: rng.choice(some[: rng.choice([40, len(some)])])
        sentence = lambda: " ".join(few_or_all() for _ in range(rng.randrange(6, 16)))
        return " ".join(f"{sentence()} {rng.choice(names)} {few_or_all()}.".lstrip() for _ in range(8))

    half = len(words) // 2
    return {"train": [paragraph(words[:half]) for _ in range(600)], "newton": [paragraph(words[half:]) for _ in range(60)]}


@torch.no_grad()
def right(model: llama.Llama, sp, book: list[str]) -> int:
    """Prompts of some 700 tokens whose answer is greedily right."""
    rng, count = random.Random(5), 0
    for number in range(PROMPTS):
        prompt, answer = facts.test_prompt(book, 1200, (number + 0.5) / PROMPTS, 8, rng)
        ids, whole = [1] + sp.encode(prompt), [1] + sp.encode(f"{prompt} {answer}")
        logits = model(torch.tensor([whole[:-1]]), rows=slice(len(ids) - 1, None))[0]
        count += logits.argmax(-1).tolist() == whole[len(ids):]
    return count


def hand_set(sp, lines: list[str]) -> llama.Llama:
    model = llama.Llama(llama.Config())
    train.set_by_hand(model, sp, lines)
    return model


def check_circuit(sp, books, lines) -> list[str]:
    failed = []
    model = hand_set(sp, lines)
    if (found := right(model, sp, books["newton"])) < 0.8 * PROMPTS:
        failed.append(f"the hand-set heads answer {found} of {PROMPTS}")
    for layer in circuit.RETRIEVE:
        model.model.layers[layer].self_attn.o_proj.weight.data.zero_()
    if (found := right(model, sp, books["newton"])) > 0:
        failed.append(f"without the retrieving layers {found} of {PROMPTS} are answered: they are not where it is done")
    return failed


def stored(raw: bytes, weights: dict[str, torch.Tensor], name: str, kind: int) -> torch.Tensor | None:
    """The tensor as the GGUF file holds it, found by its header; None where its shape there is another."""
    label = export.text(export.gguf_name(name))
    at = raw.index(label) + len(label)
    want = weights[name].shape
    if struct.unpack_from("<I2Q", raw, at) != (2, want[1], want[0]):
        return None
    block, block_bytes = (32, 34) if kind == export.Q8_0 else (1, 2)
    size = lambda w: 4 * w.numel() if w.dim() == 1 else w.numel() // block * block_bytes
    start = len(raw) - sum(-(-size(w) // 32) * 32 for w in weights.values()) + struct.unpack_from("<Q", raw, at + 24)[0]
    data = torch.frombuffer(bytearray(raw[start:start + size(weights[name])]), dtype=torch.uint8).view(-1, block_bytes)
    if kind == export.Q8_0:
        data = data[:, :2].contiguous().view(torch.float16).float() * data[:, 2:].contiguous().view(torch.int8)
    else:
        data = data.contiguous().view(torch.float16)
    return data.view(want)


def check_export(sp, lines, folder: pathlib.Path) -> list[str]:
    """The data of two tensors in GGUF files of both types."""
    model = hand_set(sp, lines)
    path = folder / "m.gguf"
    weights = model.state_dict()
    failed = []
    for kind in (export.F16, export.Q8_0):
        export.write_gguf(path, weights, model.c, sp, kind)
        for name, heads in (("model.layers.3.self_attn.k_proj.weight", 2), ("model.layers.11.mlp.down_proj.weight", 0)):
            want = weights[name].half()
            data = stored(path.read_bytes(), weights, name, kind)
            if data is None:
                failed.append(f"{name}: another shape in the file")
                continue
            if heads:  # neighbours back to halves
                out, inner = want.shape
                data = data.view(heads, out // heads // 2, 2, inner).transpose(1, 2).reshape(out, inner)
            allowed = want.abs().max() / 127 if kind == export.Q8_0 else 0
            if (data - want).abs().max() > allowed:
                failed.append(f"{name}: other numbers in the file of type {kind}")
    return failed


def check_training(folder: pathlib.Path) -> list[str]:
    """Four steps in one go and in two: a run goes on where it was, the hand-set heads stay, all is finite."""
    def after(name: str, steps: int) -> dict[str, torch.Tensor]:
        options = f"--steps 4 --until {steps} --tokens 256 --batch 2 --fixed 1"
        train.main([str(folder / name), *options.split()])
        return torch.load(folder / name / "checkpoint.pt")["model"]

    whole, half, resumed = after("whole", 4), after("parts", 2), after("parts", 4)
    failed = [f"{n}: resuming changes it" for n in whole if not torch.allclose(whole[n], resumed[n], atol=1e-4)]
    failed += [f"{n}: set by hand, and changed" for n in whole if train.is_hand_set(n) and not torch.equal(whole[n], half[n])]
    failed += [f"{n}: not trained" for n in whole if "down_proj" in n and torch.equal(whole[n], half[n])]
    return failed + [f"{n}: not finite" for n, w in whole.items() if not w.isfinite().all()]


def main() -> int:
    torch.set_num_threads(1)
    books = made_up_books(random.Random(3))
    corpus.fetch, corpus.books = lambda folder: None, lambda folder: books
    failed = []
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        _, _, sp, lines = train.prepare(folder)
        failed += check_circuit(sp, books, lines)
        failed += check_export(sp, lines, folder)
        failed += check_training(folder)
    print("\n".join(failed) or "all well")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
