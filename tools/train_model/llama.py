"""A Llama model in torch: the forward pass that is trained. Names are those of a Hugging Face checkpoint."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass
class Config:
    vocab: int = 2048
    layers: int = 12
    hidden: int = 256
    heads: int = 4
    kv_heads: int = 2
    ffn: int = 640
    theta: float = 1e12   # half of a head's pairs turn by less than 0.3 over 16k positions: room to match content far away
    eps: float = 1e-5
    context: int = 32768

    @property
    def head_dim(self) -> int:
        return 64


def rope_table(config: Config, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, shaped (batch, 1, tokens, head_dim / 2). Angles in float64: positions times 1 need it."""
    half = config.head_dim // 2
    rates = config.theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = positions.double()[:, None, :, None] * rates
    return angles.cos().float(), angles.sin().float()


def rotate(x: torch.Tensor, table: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    cos, sin = (t.to(x.dtype) for t in table)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden, c.heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden, c.kv_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.heads * c.head_dim, c.hidden, bias=False)

    def queries_keys_values(self, x, table):
        batch, tokens, _ = x.shape
        split = lambda y, n: y.view(batch, tokens, n, self.c.head_dim).transpose(1, 2)
        q = rotate(split(self.q_proj(x), self.c.heads), table)
        k = rotate(split(self.k_proj(x), self.c.kv_heads), table)
        return q, k, split(self.v_proj(x), self.c.kv_heads)

    def forward(self, x, table, bias):
        q, k, v = self.queries_keys_values(x, table)
        group = self.c.heads // self.c.kv_heads
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        if bias is not None:
            bias = bias.to(q.dtype)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, is_causal=bias is None)
        return self.o_proj(y.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.up_proj = nn.Linear(c.hidden, c.ffn, bias=False)
        self.down_proj = nn.Linear(c.ffn, c.hidden, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.input_layernorm = nn.RMSNorm(c.hidden, eps=c.eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = nn.RMSNorm(c.hidden, eps=c.eps)
        self.mlp = Mlp(c)

    def forward(self, x, table, bias):
        x = x + self.self_attn(self.input_layernorm(x), table, bias)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab, c.hidden)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.layers))
        self.norm = nn.RMSNorm(c.hidden, eps=c.eps)


class Llama(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.model = Body(c)
        self.lm_head = nn.Linear(c.hidden, c.vocab, bias=False)

    def forward(self, ids, positions=None, bias=None, rows=slice(None)):
        """Logits of the rows asked for. `bias` is added to the attention logits and must hold the causal mask."""
        if positions is None:
            positions = torch.arange(ids.shape[1], device=ids.device)[None]
        table = rope_table(self.c, positions)
        x = self.model.embed_tokens(ids)
        for layer in self.model.layers:
            x = layer(x, table, bias)
        return self.lm_head(self.model.norm(x[:, rows]))
