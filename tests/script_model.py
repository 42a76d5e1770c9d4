"""A model that answers by heart: the last letter of the user's message chooses the text that it says, token by token."""

import array
import pathlib
import re
import struct

TEMPLATE = ("{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{{ messages[-1].content[-1] }}{% endif %}")
HIDDEN, HEADS, FEED_FORWARD, CONTEXT = 256, 4, 32, 8192
CONTROL, UNKNOWN, BYTE, NORMAL = 3, 2, 6, 1  # token types
U32, F32, STRING, ARRAY = 4, 6, 8, 9         # types of values
BOS, EOS = 1, 2


def pieces_of(scripts, control=()):
    """Each script's text cut into pieces that occur nowhere else, because a token knows only the one that follows it."""
    cut, used = {}, set()
    for letter, text in scripts.items():
        for length in range(5, max(len(text), 5) + 2):
            parts = re.split("(" + "|".join(map(re.escape, control)) + ")", text) if control else [text]
            pieces = [piece for part in parts
                      for piece in ([part] if part in control else [part[at:at + length] for at in range(0, len(part), length)])]
            if len(set(pieces)) == len(pieces) and not used & set(pieces):
                break
        else:
            raise ValueError(f"no cut of {text!r}")
        used |= set(pieces)
        cut[letter] = pieces
    return cut


def text_value(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    if kind == STRING:
        return text_value(key) + struct.pack("<I", kind) + text_value(value)
    return text_value(key) + struct.pack("<I" + {U32: "I", F32: "f"}[kind], kind, value)


def array_entry(key, kind, values):
    data = b"".join(text_value(v) if kind == STRING else struct.pack({U32: "<i", F32: "<f"}[kind], v) for v in values)
    return text_value(key) + struct.pack("<IIQ", ARRAY, 5 if kind == U32 else kind, len(values)) + data


def write_script_model(path, scripts, template=TEMPLATE, tool_template=None, words=(), control=()):
    """`scripts`: {letter: text}. The letter comes last in a prompt; the model says the text and stops.

    `words` are more tokens. `control` are texts that are control tokens, each of which occurs in one script, once.
    """
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    types = [UNKNOWN, CONTROL, CONTROL] + [BYTE] * 256
    for word in words:
        tokens.append(word.replace(" ", "\u2581"))
        types.append(NORMAL)
    following = {}  # of a token: the next one
    for letter, pieces in pieces_of(scripts, control).items():
        last = 3 + ord(letter)
        for piece in pieces:
            tokens.append(piece.replace(" ", "\u2581"))
            types.append(CONTROL if piece in control else NORMAL)
            following[last] = last = len(tokens) - 1
        following[last] = EOS
    assert len(following) < HIDDEN, "too many pieces"
    # The state of a token is a direction of its own; layers add nothing, and the output is the next token's row.
    embedding, output = (array.array("f", bytes(4 * HIDDEN * len(tokens))) for _ in range(2))
    for token in range(len(tokens)):
        embedding[token * HIDDEN] = 1
    for state, (token, successor) in enumerate(following.items(), 1):
        embedding[token * HIDDEN] = 0
        embedding[token * HIDDEN + state] = 1
        output[successor * HIDDEN + state] = 4
    ones, width = array.array("f", [1] * HIDDEN), (HIDDEN, HIDDEN)
    tensors = [("token_embd.weight", (HIDDEN, len(tokens)), embedding), ("output.weight", (HIDDEN, len(tokens)), output),
               ("output_norm.weight", (HIDDEN,), ones), ("blk.0.attn_norm.weight", (HIDDEN,), ones), ("blk.0.ffn_norm.weight", (HIDDEN,), ones)]
    shapes = {"attn_q": width, "attn_k": width, "attn_v": width, "attn_output": width, "ffn_gate": (HIDDEN, FEED_FORWARD),
              "ffn_up": (HIDDEN, FEED_FORWARD), "ffn_down": (FEED_FORWARD, HIDDEN)}
    tensors += [(f"blk.0.{name}.weight", shape, array.array("f", bytes(4 * shape[0] * shape[1]))) for name, shape in shapes.items()]
    entries = [entry("general.architecture", STRING, "llama"), entry("llama.context_length", U32, CONTEXT), entry("llama.embedding_length", U32, HIDDEN),
               entry("llama.block_count", U32, 1), entry("llama.feed_forward_length", U32, FEED_FORWARD),
               entry("llama.attention.head_count", U32, HEADS), entry("llama.rope.dimension_count", U32, HIDDEN // HEADS),
               entry("llama.attention.layer_norm_rms_epsilon", F32, 1e-5), entry("llama.vocab_size", U32, len(tokens)),
               entry("tokenizer.ggml.model", STRING, "llama"), array_entry("tokenizer.ggml.tokens", STRING, tokens),
               array_entry("tokenizer.ggml.scores", F32, [0.0] * len(tokens)), array_entry("tokenizer.ggml.token_type", U32, types),
               entry("tokenizer.ggml.bos_token_id", U32, BOS), entry("tokenizer.ggml.eos_token_id", U32, EOS),
               entry("tokenizer.chat_template", STRING, template)]
    if tool_template is not None:
        entries.append(entry("tokenizer.chat_template.tool_use", STRING, tool_template))
    head, offset = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(entries), 0
    for name, shape, data in tensors:
        head += text_value(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset)
        offset += 4 * len(data)
        assert offset % 32 == 0
    with pathlib.Path(path).open("wb") as file:
        file.write(head + b"\0" * (-len(head) % 32))
        for _, _, data in tensors:
            data.tofile(file)
