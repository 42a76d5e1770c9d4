"""Which token ids a label may stand for.

The engine's server and traces name a token by its text, or by "bytes:" and hexadecimal bytes that are no
UTF-8.
"""

SPACE = "\u2581"  # how SentencePiece writes a space
NORMAL = 1  # type of a token that stands for text


def byte_of_character():
    """GPT-2's alphabet: printable bytes stand for themselves, the others follow from 256 on."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in plain]
    return {chr(b): b for b in plain} | {chr(256 + i): b for i, b in enumerate(others)}


def labels(file):
    """Label -> ids, of a GGUF file's vocabulary."""
    pieces, kind = file.metadata["tokenizer.ggml.tokens"], file.text("tokenizer.ggml.model")
    types = file.metadata.get("tokenizer.ggml.token_type", [NORMAL] * len(pieces))
    alphabet, ids = byte_of_character(), {}
    for token, piece in enumerate(pieces):
        name, normal = piece.decode(), types[token] == NORMAL
        if not normal and name.startswith("<0x") and len(name) == 6:
            data = bytes([int(name[3:5], 16)])
        elif kind == "gpt2" and normal:
            data = bytes(alphabet[character] for character in name)
        else:
            data = name.replace(SPACE, " ").encode() if kind == "llama" else piece
        ids.setdefault(label(data), []).append(token)
    return ids


def label(data):
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)
