"""The forward pass of Qwen3.5 and its mixtures, plainly: three of four layers have a state in place of keys and values.

A layer with a state, over the rows x of its stream, h = RMSNorm(x):

    [q k v] = silu(sum_t w_t * (W_qkv h)_(row - T + 1 + t)),  T taps by channel, over the rows of the stream
    q, k  <- q, k / sqrt(|q, k|^2 + 1e-6) of each head;  q <- q / sqrt(key dims)
    b = sigmoid(W_b h),  g = a softplus(W_a h + bias),  a < 0
    S <- e^g S,  S <- S + k (x) b (v - S^T k),  o = S^T q
    x' = x + W_out (RMSNorm(o) * silu(W_z h))

Value head i reads key head i mod (key heads), as GGUF orders them. The norm of o is that of each head. A layer with
attention norms each head of q and k before RoPE, which turns a part of their dims, and multiplies what its heads give
by sigmoid(gate), where W_q has the rows of q and gate of one head after the other.

A token that left the stream is absent: no decay, no write, no tap, and no key. Its position stays its own.
"""

import numpy as np

from model import Model


def sigmoid(x):
    return 0.5 * (1 + np.tanh(0.5 * x))


def silu(x):
    return x * sigmoid(x)


def of_length_1(x):
    return x / np.sqrt(np.square(x).sum(axis=-1, keepdims=True) + 1e-6)


class Hybrid(Model):
    """`recurrent`: by layer, whether it has a state."""
    architectures = ("qwen35", "qwen35moe")
    ffn_norm = "post_attention_norm"

    def __init__(self, path, dtype=np.float64):
        super().__init__(path, dtype)
        get = lambda key, default=None: self.file.metadata.get(f"{self.arch}.{key}", default)
        self.layers -= get("nextn_predict_layers", 0)
        interval = get("full_attention_interval", 4)
        self.recurrent = get("attention.recurrent_layers", [(i + 1) % interval != 0 for i in range(self.layers)])
        self.key_heads, self.key_dim = get("ssm.group_count"), get("ssm.state_size")
        self.value_heads = get("ssm.time_step_rank")
        self.value_dim = get("ssm.inner_size") // self.value_heads

    # Layers with attention

    def queries_keys_values(self, x, layer, positions):
        h = self.norm(x, f"blk.{layer}.attn_norm")
        heads = lambda name: self.linear(h, f"blk.{layer}.{name}").reshape(len(x), -1, self.head_dim)
        q = self.norm(heads("attn_q")[:, 0::2], f"blk.{layer}.attn_q_norm")
        k = self.norm(heads("attn_k"), f"blk.{layer}.attn_k_norm")
        return self.rope(q, positions), self.rope(k, positions), heads("attn_v")

    def of_heads(self, out, x, layer):
        h = self.norm(x, f"blk.{layer}.attn_norm")
        gate = self.linear(h, f"blk.{layer}.attn_q").reshape(len(x), -1, self.head_dim)[:, 1::2]
        return out * sigmoid(gate.reshape(len(x), -1))

    # Layers with a state

    def convolve(self, u, layer, keep):
        """silu of the taps' sum [rows, channels]; taps are kept rows, the last of them the row itself."""
        weight = self.weights[f"blk.{layer}.ssm_conv1d.weight"]  # [channels, taps], the oldest tap first
        rows, y = np.flatnonzero(keep), np.zeros_like(u)
        for i, row in enumerate(rows):
            for back in range(min(weight.shape[1], i + 1)):
                y[row] += weight[:, -1 - back] * u[rows[i - back]]
        return silu(y)

    def delta_rule(self, q, k, v, g, beta, keep):
        """[rows, value heads, value dims]: what each kept row reads from the state behind its own write."""
        state, out = np.zeros((self.value_heads, self.key_dim, self.value_dim), self.dtype), np.zeros_like(v)
        for row in np.flatnonzero(keep):
            state *= np.exp(g[row])[:, None, None]
            known = np.einsum("hij,hi->hj", state, k[row])
            delta = beta[row][:, None] * (v[row] - known)
            state += k[row][:, :, None] * delta[:, None, :]
            out[row] = np.einsum("hij,hi->hj", state, q[row])
        return out

    def recur(self, x, layer, keep):
        """x + the mixer of a layer with a state. keep [rows]: the rows of its stream."""
        name = f"blk.{layer}."
        h = self.norm(x, name + "attn_norm")
        qkv = self.convolve(self.linear(h, name + "attn_qkv"), layer, keep)
        width = self.key_heads * self.key_dim
        by_head = lambda part: of_length_1(part.reshape(len(x), self.key_heads, -1))
        tile = lambda part: np.tile(by_head(part), (1, self.value_heads // self.key_heads, 1))
        q, k = tile(qkv[:, :width]) / np.sqrt(self.key_dim), tile(qkv[:, width:2 * width])
        v = qkv[:, 2 * width:].reshape(len(x), self.value_heads, -1)
        g = self.weights[name + "ssm_a"] * np.logaddexp(
            0, self.linear(h, name + "ssm_alpha") + self.weights[name + "ssm_dt.bias"])
        beta = sigmoid(self.linear(h, name + "ssm_beta"))
        o = self.delta_rule(q, k, v, g, beta, keep)
        o = self.norm(o, name + "ssm_norm").reshape(len(x), -1)
        return x + self.linear(o * silu(self.linear(h, name + "attn_gate")), name + "ssm_out")

    # All layers

    def logits(self, ids, keep=None, positions=None):
        """[tokens, vocabulary]. keep [layers, tokens]: the stream of each layer; a token that left does not return.

        Rows of tokens that the last layer lacks mean nothing.
        """
        keep = np.ones((self.layers, len(ids)), bool) if keep is None else keep
        positions = np.arange(len(ids)) if positions is None else positions
        x = self.embed(ids)
        for layer in range(self.layers):
            x = self.layer(x, layer, positions, keep[layer])
        return self.norm(x, "output_norm") @ self.output.T

    def layer(self, x, layer, positions, keep):
        if self.recurrent[layer]:
            return self.ffn(self.recur(x, layer, keep), layer)
        own = np.eye(len(x), dtype=bool)  # so that a row which left has a key to read
        order = positions[None, :] <= positions[:, None]
        visible = (order & keep[None, :]) | own
        q, k, v = self.queries_keys_values(x, layer, positions)
        return self.ffn(self.attend(x, layer, q, k, v, lambda begin, end: visible[begin:end]), layer)
