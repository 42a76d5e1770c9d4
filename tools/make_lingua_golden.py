#!/usr/bin/env python3
"""Makes tests/data/llmlingua2: two tiny classifiers with seeded random weights, and what LLMLingua-2's own program does
with them. The tests of src/engine/word_classifier.cpp and src/policies/methods/llmlingua2.cpp compare with it.

    python3 -m venv /tmp/lingua && /tmp/lingua/bin/pip install torch transformers sentencepiece protobuf llmlingua
    /tmp/lingua/bin/python tools/make_lingua_golden.py

Three things are replaced in the authors' program (llmlingua 0.2.2), because they need its network, its large models or
are not wanted here:
  - words are weighted by their bytes, not by the tokens of GPT-3.5;
  - chunks have 64 tokens, not 512, so that the tables of positions are small;
  - XLM-RoBERTa's texts stand between <s> and </s>, as in training; a default argument of the program gives <unk>.
"""

import json
import pathlib
import sys
import tempfile
import types

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import models, normalizers, pre_tokenizers

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests/data/llmlingua2"
CHUNK = 64
# Replaced characters of the tiny charsmap, as SentencePiece's rules: code points, a tab, code points.
RULES = {"\u00a0": " ", "\n": " ", "\r": " ", "\t": " ", "\u3000": " ", "\uff21": "A", "\uff22": "B", "\uff11": "1",
         "\ufb01": "fi", "\u2026": "...", "e\u0301": "\u00e9", "\u00bd": "1/2", "\u200b": ""}
TEXTS = [
    "The committee met on 12 March 2019. It agreed that the budget of $3,450.75 would be cut, and that nobody "
    "would be paid twice! Would it last? Nobody knew... The next item was the harbour: 3 ships, 40 men and a dog.",
    "Caf\u00e9 na\u00efve \u2014 \u201cquoted\u201d, (bracketed) text; e-mail: someone@example.com / http://x.y/z?q=1&r=2 "
    "\u4f60\u597d\u4e16\u754c mixed\u4e2dtext. New\nlines\n\nand\ttabs\u00a0here \uff21\uff22\uff11 \ufb01ne\u2026 "
    "cafe\u0301 \u00bd \u200bend \U0001f600 !!! ??? ... 1.2.3",
    "word " * 150 + "and then a stop. " + "Another sentence follows here, with 7 numbers: 1, 2, 3, 4, 5, 6, 7. " * 6,
    "short",
]
CASES = [{"rate": 0.5}, {"rate": 0.2}, {"rate": 0.33, "force_tokens": [".", "?", "!"]},
         {"rate": 0.5, "force_tokens": [".", "?", "!"], "drop_consecutive": True},
         {"rate": 0.3, "force_reserve_digit": True}]


def corpus() -> list:
    """Text of this repository, for the vocabularies."""
    pages = sorted((ROOT / "docs").glob("*.md"))[:6]
    return [line for page in pages for line in page.read_text().splitlines() if line.strip()] + TEXTS


def small(config_class, vocab: int, **more):
    return config_class(vocab_size=vocab, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                        intermediate_size=48, type_vocab_size=more.pop("types"), num_labels=2, **more)


def save(model, folder: pathlib.Path) -> None:
    with torch.no_grad():  # larger than the usual 0.02, so that probabilities differ
        for name, weight in model.named_parameters():
            if weight.dim() == 2:
                weight.copy_(torch.randn_like(weight) * 0.25)
            elif "bias" in name:
                weight.copy_(torch.randn_like(weight) * 0.1)
        model.classifier.bias.zero_()
    model.save_pretrained(folder, safe_serialization=True)


def make_bert(folder: pathlib.Path) -> None:
    tok = tokenizers.BertWordPieceTokenizer(lowercase=False, strip_accents=False)
    tok.train_from_iterator(corpus(), vocab_size=360, limit_alphabet=120, show_progress=False)
    tok.save(str(folder / "tokenizer.json"))
    torch.manual_seed(1)
    config = small(transformers.BertConfig, tok.get_vocab_size(), types=2, max_position_embeddings=CHUNK)
    save(transformers.BertForTokenClassification(config), folder)


def make_xlmr(folder: pathlib.Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        work = pathlib.Path(temporary)
        codes = lambda text: " ".join(f"{ord(c):X}" for c in text)
        (work / "rules.tsv").write_text("".join(f"{codes(a)}\t{codes(b)}\n" for a, b in RULES.items()))
        (work / "corpus.txt").write_text("\n".join(corpus()))
        sentencepiece.SentencePieceTrainer.train(
            input=str(work / "corpus.txt"), model_prefix=str(work / "m"), vocab_size=420, character_coverage=0.99,
            normalization_rule_tsv=str(work / "rules.tsv"), bos_id=-1, eos_id=-1, minloglevel=2)
        model = work / "m.model"
        from sentencepiece import sentencepiece_model_pb2 as pb
        proto = pb.ModelProto()
        proto.ParseFromString(model.read_bytes())
    pieces = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    pieces += [(p.piece, p.score) for p in proto.pieces if p.type == 1]
    known = {piece for piece, _ in pieces}
    # As in the published vocabulary: the program takes a forced token that is not one token out of the text.
    pieces += [(mark, -4.0) for mark in ("\u2581.", "\u2581?", "\u2581!") if mark not in known]
    tok = tokenizers.Tokenizer(models.Unigram(pieces, unk_id=3))
    tok.normalizer = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tok.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="always")])
    from tokenizers.decoders import Metaspace
    tok.decoder = Metaspace(replacement="\u2581", prepend_scheme="always")
    tok.save(str(folder / "tokenizer.json"))
    torch.manual_seed(5)
    config = small(transformers.XLMRobertaConfig, len(pieces), types=1, max_position_embeddings=CHUNK + 2,
                   pad_token_id=1, bos_token_id=0, eos_token_id=2)
    save(transformers.XLMRobertaForTokenClassification(config), folder)


def load_program(folder: pathlib.Path, roberta: bool):
    import tiktoken
    tiktoken.encoding_for_model = lambda name: types.SimpleNamespace(encode=lambda text: list(text.encode()))
    from llmlingua import prompt_compressor as program
    special = ({"cls_token": "<s>", "sep_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>",
                "eos_token": "</s>", "mask_token": "<mask>"} if roberta else
               {"cls_token": "[CLS]", "sep_token": "[SEP]", "pad_token": "[PAD]", "unk_token": "[UNK]",
                "mask_token": "[MASK]"})
    name = "xlm-roberta-large" if roberta else "bert-base-multilingual-cased"
    from llmlingua.utils import TokenClfDataset as of_texts
    patched = lambda texts, tokenizer, max_len: of_texts(texts, tokenizer=tokenizer, max_len=max_len, model_name=name)

    class Compressor(program.PromptCompressor):
        def load_model(self, *_):
            self.tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **special)
            self.model = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
            self.device = "cpu"

        def init_llmlingua2(self):
            self.max_batch_size, self.max_seq_len, self.max_force_token = 50, CHUNK, 100
            self.special_tokens = set(special.values())
            self.added_tokens = [f"[NEW{i}]" for i in range(100)]

    program.TokenClfDataset = patched
    return Compressor(name, "cpu", use_llmlingua2=True)


def cases_of(folder: pathlib.Path, roberta: bool) -> dict:
    program = load_program(folder, roberta)
    texts = []
    for text in TEXTS:
        encoded = program.tokenizer(text, add_special_tokens=False)
        first = program.tokenizer.cls_token_id, program.tokenizer.sep_token_id
        ids = [first[0], *encoded.input_ids[:CHUNK - 2], first[1]]
        with torch.no_grad():
            logits = program.model(torch.tensor([ids])).logits[0]
        entry = {"text": text, "ids": encoded.input_ids,
                 "probabilities": [round(p, 6) for p in torch.softmax(logits, -1)[:, 1].tolist()], "cases": []}
        for case in CASES:
            # The separator and the label are what no text holds.
            result = program.compress_prompt_llmlingua2([text], return_word_label=True, word_sep="\x01", label_sep="\x02",
                                                        **case)
            labelled = [w.split("\x02") for w in result["fn_labeled_original_prompt"].split("\x01")]
            entry["cases"].append({**case, "words": [w for w, _ in labelled], "labels": [int(l) for _, l in labelled]})
        texts.append(entry)
    return {"texts": texts}


def main() -> None:
    for name, make, roberta in (("bert", make_bert, False), ("xlmr", make_xlmr, True)):
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        make(folder)
        cases = cases_of(folder, roberta)
        (folder / "cases.json").write_text(json.dumps(cases, ensure_ascii=False, indent=None) + "\n")
        print(name, [len(t["ids"]) for t in cases["texts"]], file=sys.stderr)


if __name__ == "__main__":
    main()
