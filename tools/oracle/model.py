"""The forward pass of Llama and Qwen2 models and of their mixtures, plainly: every formula once, no kernels, no tricks.

One layer l, over rows x at positions p:

    h  = RMSNorm(x)              q = R(p) (W_q h + b_q)     k = R(p) (W_k h + b_k)     v = W_v h + b_v
    x' = x + W_o softmax(q k^T / sqrt(c)) v
    y  = x' + W_down (silu(W_gate g) * W_up g),  g = RMSNorm(x')

R(p) is RoPE: it turns pair i of a head by the angle p theta^(-2i/c). Query head h reads key and value head
h // (H / G). Only Qwen2 has the biases b. GGUF stores Llama's W_q and W_k with the rows of a pair next to
each other, (2i, 2i + 1). Qwen2's pairs are (i, i + c/2).

In a mixture of experts (Mixtral, Qwen2-MoE) a row g runs k of E FFNs f_e, and where there is one a shared FFN:

    p = softmax(W_r g), its k largest p_e; Mixtral divides them by their sum
    y = x' + sum_e p_e f_e(g) + sigmoid(w_s g) f_shared(g)
"""

import numpy as np

from gguf_weights import Gguf

ROWS = 256  # queries in one piece of attention: a bound on memory, with no influence on results


class Model:
    """H `heads`, G `kv_heads`, c `head_dim`.

    Hidden states are [rows, d], queries [rows, H, c], keys and values [rows, G, c].
    """
    architectures = ("llama", "qwen2", "qwen2moe")
    ffn_norm = "ffn_norm"  # the name of the norm before a layer's FFN

    def __init__(self, path, dtype=np.float32):
        file = Gguf(path)
        self.arch, self.dtype, self.file = file.text("general.architecture"), dtype, file
        if self.arch not in self.architectures:
            raise ValueError(f"{path}: architecture {self.arch} is none of {', '.join(self.architectures)}")
        get = lambda key, default=None: file.metadata.get(f"{self.arch}.{key}", default)
        if get("rope.scaling.type", b"none") != b"none":
            raise ValueError(f"{path}: RoPE scaling is not supported")
        self.layers = get("block_count")
        self.d = get("embedding_length")
        self.heads = get("attention.head_count")
        self.kv_heads = get("attention.head_count_kv", self.heads)
        self.head_dim = get("attention.key_length", self.d // self.heads)
        self.eps = get("attention.layer_norm_rms_epsilon")
        self.experts_used = get("expert_used_count", 0)
        self.turned = get("rope.dimension_count", self.head_dim)  # the first dims of a head; the others pass RoPE
        pairs = np.arange(0, self.turned, 2) / self.turned
        self.frequencies = float(get("rope.freq_base", 10000.0)) ** -pairs
        if "rope_freqs.weight" in file:
            self.frequencies = self.frequencies / file.tensor("rope_freqs.weight")
        self.weights = {name: file.tensor(name).astype(dtype) for name in file.places}
        self.output = self.weights.get("output.weight", self.weights["token_embd.weight"])  # or tied

    def embed(self, ids):
        return self.weights["token_embd.weight"][np.asarray(ids)]

    def norm(self, x, name):
        mean_square = np.mean(np.square(x, dtype=np.float64), axis=-1, keepdims=True)
        return (x / np.sqrt(mean_square + self.eps)).astype(self.dtype) * self.weights[name + ".weight"]

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def rope(self, x, positions):
        """x is [rows, heads, c]."""
        angles = np.asarray(positions)[:, None, None] * self.frequencies
        cos, sin = np.cos(angles).astype(self.dtype), np.sin(angles).astype(self.dtype)
        end, half = self.turned, self.turned // 2
        first, second = (np.s_[..., 0:end:2], np.s_[..., 1:end:2]) if self.arch == "llama" else \
            (np.s_[..., :half], np.s_[..., half:end])
        turned = x.copy()
        turned[first] = x[first] * cos - x[second] * sin
        turned[second] = x[first] * sin + x[second] * cos
        return turned

    def queries_keys_values(self, x, layer, positions):
        h = self.norm(x, f"blk.{layer}.attn_norm")
        project = lambda name: self.linear(h, f"blk.{layer}.{name}").reshape(len(x), -1, self.head_dim)
        q, k = project("attn_q"), project("attn_k")
        return self.rope(q, positions), self.rope(k, positions), project("attn_v")

    def attention_weights(self, q, k, visible):
        """softmax(q k^T / sqrt(c)): [H, queries, keys].

        visible [queries, keys], or by head [H, queries, keys]: which keys a query sees.
        """
        weights = np.empty((self.heads, len(q), len(k)), self.dtype)
        for head in range(self.heads):
            weights[head] = q[:, head] @ k[:, head // (self.heads // self.kv_heads)].T
        weights *= self.dtype(self.head_dim ** -0.5)
        weights[np.broadcast_to(~visible, weights.shape)] = -np.inf
        weights -= weights.max(axis=-1, keepdims=True)
        np.exp(weights, out=weights)
        return weights / weights.sum(axis=-1, keepdims=True)

    def attend(self, x, layer, q, k, v, visible):
        """x + W_o softmax(q k^T / sqrt(c)) v. visible(begin, end): the mask of queries [begin, end)."""
        out = np.empty_like(q)
        for begin in range(0, len(q), ROWS):
            end = min(begin + ROWS, len(q))
            weights = self.attention_weights(q[begin:end], k, visible(begin, end))
            for head in range(self.heads):
                out[begin:end, head] = weights[head] @ v[:, head // (self.heads // self.kv_heads)]
        return x + self.linear(self.of_heads(out.reshape(len(q), -1), x, layer), f"blk.{layer}.attn_output")

    def of_heads(self, out, x, layer):
        """What W_o gets: the heads' outputs [rows, H c]."""
        return out

    def gated(self, g, gate, up, down):
        """W_down (silu(W_gate g) * W_up g)."""
        a = g @ gate.T
        with np.errstate(over="ignore"):  # exp(-a) may become infinite, and silu zero, which is right
            silu = a / (1 + np.exp(-a))
        return (silu * (g @ up.T)) @ down.T

    def route(self, g, layer):
        """[rows, E]: the weight of each expert, 0 of those that a row does not run."""
        logits = self.linear(g, f"blk.{layer}.ffn_gate_inp").astype(np.float64)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        others = np.argsort(-p, axis=1, kind="stable")[:, self.experts_used:]  # of equal experts the first runs
        np.put_along_axis(p, others, 0, axis=1)
        if self.arch in ("llama", "qwen35moe"):
            p /= p.sum(axis=1, keepdims=True)
        return p.astype(self.dtype)

    def mixture(self, g, layer):
        parts = lambda kind: [self.weights[f"blk.{layer}.ffn_{part}_{kind}.weight"] for part in ("gate", "up", "down")]
        weights, y = self.route(g, layer), np.zeros_like(g)
        for expert, matrices in enumerate(zip(*parts("exps"))):
            rows = np.flatnonzero(weights[:, expert])
            y[rows] += weights[rows, expert, None] * self.gated(g[rows], *matrices)
        if f"blk.{layer}.ffn_gate_shexp.weight" in self.weights:
            share = g @ self.weights[f"blk.{layer}.ffn_gate_inp_shexp.weight"].reshape(-1)
            y += self.gated(g, *parts("shexp")) / (1 + np.exp(-share[:, None]))
        return y

    def ffn(self, x, layer):
        """x + FFN(norm(x))."""
        g = self.norm(x, f"blk.{layer}.{self.ffn_norm}")
        if f"blk.{layer}.ffn_gate_inp.weight" in self.weights:
            return x + self.mixture(g, layer)
        return x + self.gated(g, *[self.weights[f"blk.{layer}.ffn_{part}.weight"] for part in ("gate", "up", "down")])

    def log_probabilities(self, x):
        """[vocabulary], for the token behind the last row of x."""
        logits = (self.norm(x[-1:], "output_norm") @ self.output.T)[0].astype(np.float64)
        logits -= logits.max()
        return logits - np.log(np.exp(logits).sum())
