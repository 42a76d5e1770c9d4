"""Prefill and decode with the places where a pruning method acts.

A prompt has N tokens, at positions 0 .. N - 1. Generated tokens follow at N, N + 1, ..., whatever was
pruned. A token that was dropped from the stream may be parked: its hidden state is kept, with the layer
that it would enter next, and with whether it still owes the FFN of the layer before. When a decode step
chooses a parked token, the token joins the stream of that step at its own position. It then gets keys and
values in that layer for the first time.
"""

import dataclasses

import numpy as np


@dataclasses.dataclass
class Parked:
    layer: int  # the first layer in which the token has no keys
    owes_ffn: bool  # whether the FFN of layer - 1 was not run on `hidden` yet
    hidden: np.ndarray


class Method:
    """What a pruning method decides. The base class decides nothing: a dense run."""
    queries = 1  # last queries of each layer that the method looks at
    parks = False  # whether dropped tokens can return while generating
    append = True  # returning tokens see every attended token; otherwise only earlier positions
    compact = False  # the tokens that enter take positions 0, 1, ...; otherwise they keep their own

    def input(self, seq, ids):
        """Which tokens of the prompt enter the model, or None for all."""

    def enters(self, seq, layer):
        """Prefill: positions that enter the layer, or None for all."""

    def runs_attention(self, seq, layer):
        """Prefill: positions that attend and are attended, or None for all that entered the layer.

        The keys and queries of all that entered are there already. The others' keys are deleted, their hidden
        states go on as they came, and they may attend in a later layer.
        """

    def reads(self, seq, layer, q, k):
        """Prefill: [H, rows, rows], which keys each query reads of those before it; or None for all.

        The rows are those that attend.
        """

    def stays(self, seq, layer):
        """Prefill, after the layer's attention: positions that stay in the stream, or None for all."""

    def evicts(self, seq, layer):
        """Prefill, after the layer's attention: the positions that each kv head's cache keeps, or None."""

    def runs_ffn(self, seq, layer):
        """Prefill: positions whose FFN runs, or None for all in the stream."""

    def attends_before(self, seq, layer):
        """Decode: positions attended from this layer on, or None for no new choice."""

    def attends_after(self, seq, layer):
        """Decode, after the layer's attention: positions attended from the next layer on, or None."""


class Sequence:
    """One prompt and its answer.

    `kept` and `ffn` record the positions of each layer in prefill: those with keys, and those whose FFN ran.
    `attended` and `revived` record each decode step, layer by layer.
    """

    def __init__(self, model, ids, method, referee, capacity):
        self.model, self.method, self.referee, self.prompt = model, method, referee, len(ids)
        shape = (model.layers, capacity, model.kv_heads, model.head_dim)
        self.keys, self.values = np.zeros(shape, model.dtype), np.zeros(shape, model.dtype)
        self.has = np.zeros(shape[:2], bool)  # [layers, positions]: whether there are keys, in any kv head
        self.has_gaps = False  # whether a token may lack keys in a layer and have some in a later one
        self.evicted = {}  # layer -> [kv heads, positions]: whether the head's keys were deleted
        self.parked = {}  # position -> Parked
        self.last_queries = [None] * model.layers  # each [up to method.queries, H, c]
        self.length, self.step = len(ids), -1
        self.kept, self.ffn, self.attended, self.revived = [], [], [], []
        self.density = []  # share of causal attention's pairs that each layer reads in prefill
        self.nearly = [0.0] * model.layers  # share of the pairs that rounding could add or leave out
        entering = method.input(self, ids)
        entering = np.arange(len(ids)) if entering is None else entering
        if method.compact:
            self.prompt = self.length = len(entering)
        self.positions = np.arange(len(entering)) if method.compact else entering
        self.x = model.embed(np.asarray(ids)[entering])  # the stream, with its positions
        self.log_probabilities = self.prefill()

    # Prefill

    def prefill(self):
        for layer in range(self.model.layers):
            self.drop_others(self.method.enters(self, layer), layer, owes_ffn=False)
            self.prefill_attention(layer)
            self.evict(self.method.evicts(self, layer), layer)
            self.kept.append(np.flatnonzero(self.has[layer]))
            self.drop_others(self.method.stays(self, layer), layer + 1, owes_ffn=True)
            rows = self.method.runs_ffn(self, layer)
            rows = self.positions if rows is None else rows
            if layer == self.model.layers - 1:
                rows = self.positions[-1:]  # nothing reads the other rows
            self.ffn.append(rows)
            chosen = np.isin(self.positions, rows)
            self.x[chosen] = self.model.ffn(self.x[chosen], layer)
        return self.model.log_probabilities(self.x)

    def prefill_attention(self, layer):
        q, k, v = self.model.queries_keys_values(self.x, layer, self.positions)
        self.store(layer, q, k, v)
        runs = self.keep_keys(self.method.runs_attention(self, layer), layer)
        q, k, v, positions = q[runs], k[runs], v[runs], self.positions[runs]
        sees = lambda begin, end: positions[None, :] <= positions[begin:end, None]
        mask = self.method.reads(self, layer, q, k)
        if mask is not None:
            sees = lambda begin, end: mask[:, begin:end]
        self.density.append(1.0 if mask is None else mask.mean() / np.tri(len(q)).mean())
        self.x[runs] = self.model.attend(self.x[runs], layer, q, k, v, sees)

    def keep_keys(self, kept, layer):
        """Deletes the keys of the stream's rows but `kept`. Returns which rows have keys: [rows]."""
        if kept is None:
            return np.ones(len(self.positions), bool)
        stay = np.isin(self.positions, kept)
        self.has[layer, self.positions[~stay]] = False
        self.has_gaps = True
        return stay

    def evict(self, kept, layer):
        """Deletes the keys of all positions but those that `kept` lists for each kv head."""
        if kept is None:
            return
        held = np.stack([np.isin(np.arange(self.has.shape[1]), rows) for rows in kept])
        self.evicted[layer] = self.has[layer] & ~held
        self.has[layer] &= held.any(axis=0)

    def drop_others(self, kept, layer, owes_ffn):
        """Takes all tokens but `kept` out of the stream. They would enter `layer` next."""
        if kept is None:
            return
        stay = np.isin(self.positions, kept)
        if self.method.parks and layer < self.model.layers:
            for row in np.flatnonzero(~stay):
                self.parked[int(self.positions[row])] = Parked(layer, owes_ffn, self.x[row].copy())
        self.positions, self.x = self.positions[stay], self.x[stay]

    # Decode

    def decode(self, token):
        """Feeds one generated token. Returns the log-probabilities of the token behind it."""
        current, self.step = self.length, self.step + 1
        self.length += 1
        self.positions, self.x = np.array([current]), self.model.embed([token])
        self.sees = None  # attended positions, or None: all that have keys in a layer
        self.attended.append([])
        self.revived.append([])
        for layer in range(self.model.layers):
            self.attend_only(self.method.attends_before(self, layer), layer, owes_ffn=False)
            self.decode_attention(layer)
            self.attend_only(self.method.attends_after(self, layer), layer + 1, owes_ffn=True)
            self.x = self.model.ffn(self.x, layer)
        self.check_parked()
        return self.model.log_probabilities(self.x)

    def decode_attention(self, layer):
        q, k, v = self.model.queries_keys_values(self.x, layer, self.positions)
        assert not self.has[layer, self.positions].any(), "a token was computed twice in one layer"
        self.store(layer, q, k, v)
        seen = np.flatnonzero(self.has[layer]) if self.sees is None else self.sees
        assert self.has[layer, seen].all(), "an attended token has no keys"
        if self.method.append:
            visible = np.ones((len(q), len(seen)), bool)
        else:
            visible = seen[None, :] <= self.positions[:, None]
        if layer in self.evicted:  # then only the current token runs
            held = np.repeat(~self.evicted[layer][:, seen], self.model.heads // self.model.kv_heads, axis=0)
            visible = visible & held[:, None, :]
        self.x = self.model.attend(self.x, layer, q, self.keys[layer, seen], self.values[layer, seen],
                                   lambda begin, end: visible[..., begin:end, :])
        self.attended[-1].append(seen)
        self.revived[-1].append(self.positions[:-1])

    def attend_only(self, chosen, layer, owes_ffn):
        """From `layer` on the step attends `chosen`. Parked ones return, running ones outside are parked."""
        if chosen is None:
            return
        self.sees = chosen
        self.drop_others(chosen, layer, owes_ffn)
        if layer == self.model.layers:
            return
        missing = [int(p) for p in np.setdiff1d(chosen, self.positions) if not self.has[layer, p]]
        back = [self.parked.pop(p) for p in missing]
        assert all(p.layer == layer and p.owes_ffn == owes_ffn for p in back), "a token is parked elsewhere"
        if back:
            order = np.argsort(np.concatenate([missing, self.positions]), kind="stable")
            self.positions = np.concatenate([missing, self.positions])[order]
            self.x = np.concatenate([np.stack([p.hidden for p in back]), self.x])[order]

    def check_parked(self):
        """Every token has keys in all layers below one, and is parked there, unless that is all of them."""
        if self.evicted or self.has_gaps:
            return
        depth = self.has[:, :self.length].sum(axis=0)
        assert all(self.has[:d, p].all() for p, d in enumerate(depth)), "keys above a layer without keys"
        if self.method.parks:
            waiting = {p: int(d) for p, d in enumerate(depth) if d < self.model.layers}
            assert waiting == {p: parked.layer for p, parked in self.parked.items()}

    # Both

    def store(self, layer, q, k, v):
        """Keys and values of the stream's rows, and the last queries of prompt and answer."""
        self.keys[layer, self.positions], self.values[layer, self.positions] = k, v
        self.has[layer, self.positions] = True
        new = q if self.step < 0 else q[-1:]  # of a step the current token's alone
        before = self.last_queries[layer]
        both = new if before is None else np.concatenate([before, new])
        self.last_queries[layer] = both[-self.method.queries:]

    def attention_mass(self, layer, positions, count):
        """[positions]: the softmax weights of the last `count` queries, summed over heads and queries.

        `positions` are all that these queries may see, and the queries' own positions are the last of them.
        """
        q = self.last_queries[layer][-count:]
        visible = positions[None, :] <= positions[-len(q):, None]
        weights = self.model.attention_weights(q, self.keys[layer, positions], visible)
        return weights.sum(axis=(0, 1), dtype=np.float64)
