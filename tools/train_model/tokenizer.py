"""Trains the SentencePiece tokenizer: BPE with byte fallback and single digits, as Llama's."""

import pathlib

import sentencepiece

VOCABULARY = 2048


def train(lines: list[str], prefix: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
    lines = [part for line in lines for part in line.split("\n")]  # a line end stays a byte of its own
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_prefix=str(prefix), vocab_size=VOCABULARY, model_type="bpe", byte_fallback=True,
        split_digits=True, character_coverage=1.0, normalization_rule_name="identity", remove_extra_whitespaces=False,
        max_sentence_length=20000, num_threads=1, unk_id=0, bos_id=1, eos_id=2, pad_id=-1, minloglevel=2)
    return load(prefix.with_suffix(".model"))


def load(path: pathlib.Path) -> sentencepiece.SentencePieceProcessor:
    return sentencepiece.SentencePieceProcessor(model_file=str(path))
