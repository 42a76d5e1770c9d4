"""SpecPrefill (arXiv 2502.02789): a second model chooses the chunks of the prompt that enter the model.

The second model reads the prompt and generates greedily. With its queries k = 0, ..., K - 1, those of the
prompt's last token and of the tokens that it generates, over the prompt's N keys alone:

    m[l, h, k, i] = (1 / pool) sum of A[l, h, k, j] over |j - i| <= pool / 2, zeros beyond the ends
    s_i           = mean over k of max over l, h of m[l, h, k, i]
    enter: the ceil(keep * chunks) chunks with the best mean s, and the last token, at their own positions

The queries end where the second model ends its answer.
"""

import math

import numpy as np

from choices import best, of_weights
from model import Model
from sequence import Method, Sequence


class SpecPrefill(Method):
    compact = False

    def __init__(self, settings):
        self.draft = Model(settings.text("draft"))
        self.keep, self.chunk = settings.number("keep"), settings.integer("chunk")
        self.look_ahead, self.pool = settings.integer("look_ahead"), settings.integer("pool")

    def input(self, seq, ids):
        scores, tokens = self.scores(ids), np.arange(len(ids))
        of_token = tokens // self.chunk
        chunks = np.unique(of_token)
        means = np.array([scores[of_token == chunk].mean() for chunk in chunks])
        choice = best(chunks, means, math.ceil(self.keep * len(chunks)), of_weights)
        kept = seq.referee.settle(seq.step, 0, "chunks", choice)
        return tokens[np.isin(of_token, kept) | (tokens == len(ids) - 1)]

    def scores(self, ids):
        reader = Sequence(self.draft, ids[:-1], Method(), None, len(ids) + self.look_ahead)
        token, of_queries = ids[-1], []
        for _ in range(self.look_ahead):
            answer = reader.decode(token)
            of_queries.append(self.of_query(reader, len(ids)))
            token = int(np.argmax(answer))
            if token == self.draft.file.metadata["tokenizer.ggml.eos_token_id"]:
                break
        return np.mean(of_queries, axis=0)

    def of_query(self, reader, count):
        window, of_heads = np.ones(self.pool) / self.pool, []
        for layer in range(self.draft.layers):
            weights = self.draft.attention_weights(reader.last_queries[layer][-1:], reader.keys[layer, :count],
                                                   np.ones((1, count), bool))[:, 0]
            of_heads += [np.convolve(head.astype(np.float64), window, "same") for head in weights]
        return np.max(of_heads, axis=0)
