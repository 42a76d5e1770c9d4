"""Every kernel that the GPU backend launches: its arguments, tile sizes and grid. compile.py compiles this list, and
readme.py prints README.md from it.

An argument reads name:type. Types: f32 bf16 f16 i8 u8 i32; a pointer ends in *; a plain i32 or f32 is a scalar.
A final ! promises alignment: of a pointer to 16 bytes, of a scalar to a multiple of 16.
"""

import dataclasses

TILE = 1024  # elements of a row that one program of the row operations handles


@dataclasses.dataclass(frozen=True)
class Variant:
    name: str        # of the cubin, in the manifest
    function: str    # module.function of this folder; the function is also the entry point in the cubin
    arguments: str   # as above, in the order of the launch
    grid: str        # of programs; cd(a, b) is a / b rounded up
    warps: int
    constants: dict
    note: str = ""
    stages: int = 1
    registers: int = 0  # at most so many a thread; 0: as the compiler likes

    def parsed(self) -> list[tuple[str, str, bool]]:
        """Name, type and whether it is aligned, of each argument."""
        result = []
        for argument in self.arguments.split():
            name, kind = argument.split(":")
            result.append((name, kind.rstrip("!"), kind.endswith("!")))
        return result


def rows() -> list[Variant]:
    """One row operation each; x and y have rows of d values at strides sx and sy."""
    def tiles(name, arguments, note="", constants=None, function=None):
        return Variant(name, f"rows.{function or name}", arguments, f"(m, cd(d, {TILE}))", 4,
                       {"TILE": TILE} | (constants or {}), note)
    gather = "x:{0}* rows:i32* y:{0}* d:i32 sx:i32 sy:i32"
    return [
        Variant("rms_norm", "rows.rms_norm", "x:f32* weight:f32* y:f32* d:i32 sx:i32 sy:i32 eps:f32", "(m)", 4,
                {"TILE": TILE}, "y may be x"),
        Variant("layer_norm", "rows.layer_norm",
                "x:f32* weight:f32* bias:f32* y:f32* d:i32 sx:i32 sy:i32 eps:f32", "(m)", 4, {"TILE": TILE},
                "y may be x"),
        Variant("rope", "rows.rope", "x:f32* positions:i32* cos:f32* sin:f32* head_dim:i32 pairs:i32 sx:i32 st:i32 "
                "interleaved:i32", "(m, heads)", 1, {"PAIRS": 64}, "in place; st: stride of cos and sin"),
        tiles("silu_mul", "gate:f32* up:f32* d:i32 sx:i32 sy:i32", "in place in gate; sx of gate, sy of up"),
        tiles("gelu", "x:f32* d:i32 sx:i32", "in place"),
        tiles("add", "x:f32* y:f32* d:i32 sx:i32 sy:i32", "y += x"),
        tiles("scatter_add", "x:f32* rows:i32* y:f32* d:i32 sx:i32 sy:i32", "y[rows[i]] += x[i]"),
        tiles("gather_8", gather.format("u8"), "y[i] = x[rows[i]], in bytes; y must not be x", function="gather"),
        tiles("gather_16", gather.format("bf16"), "the same for F16 and BF16", function="gather"),
        tiles("gather_32", gather.format("f32"), "the same for F32", function="gather"),
    ]


def conversions() -> list[Variant]:
    def convert(name, source, target):
        return Variant(name, "convert.convert", f"x:{source}* y:{target}* d:i32 width:i32 sx:i32 sy:i32",
                       f"(m, cd(width, {TILE}))", 4, {"TILE": TILE}, "columns [d, width) of y become 0")
    blocks = "(m, cd(d / 32, 32))"
    return [
        convert("convert_f32_f32", "f32", "f32"),
        convert("convert_f32_bf16", "f32", "bf16"),
        convert("convert_f32_f16", "f32", "f16"),
        convert("convert_f16_bf16", "f16", "bf16"),
        Variant("convert_f32_q8_0", "convert.to_q8_0", "x:f32* y:i8* d:i32 sx:i32 sy:i32", blocks, 4,
                {"BLOCKS": 32}, "y: Q8_0 blocks as in GGUF files, at an even address; sy in bytes"),
        Variant("convert_q8_0_bf16", "convert.from_q8_0", "x:i8* y:bf16* d:i32 sx:i32 sy:i32", blocks, 4,
                {"BLOCKS": 32}, "x: Q8_0 blocks as in GGUF files, at an even address; sx in bytes"),
    ]


# The layouts of weights in device memory: constants of weights.py, and the type of a code.
FORMS = {
    "bf16": ({"BITS": 16, "SUPER": False}, "bf16"),
    "q8": ({"BITS": 8, "SUPER": False}, "i8"),
    "q4": ({"BITS": 4, "SUPER": False}, "u8"),
    "q8k": ({"BITS": 8, "SUPER": True}, "i8"),
    "q4k": ({"BITS": 4, "SUPER": True}, "u8"),
}
WEIGHT = "codes:{}*! scales:f16*! mins:f16*! groups:i8*! group_mins:u8*!"


def products() -> list[Variant]:
    result = []
    for form, (constants, code) in FORMS.items():
        weight = WEIGHT.format(code)
        result.append(Variant(
            f"product_{form}", "product.product", f"x:bf16*! {weight} bias:f32* y:f32* rows:i32 outputs:i32 k:i32! "
            "sx:i32! sy:i32 zero:f32 group:i32 flags:i32", "(cd(rows, 128) * cd(width, 128))", 8,
            constants | {"BM": 128, "BN": 128, "BK": 64}, "width: outputs, or 2 outputs if gated", stages=3, registers=128))
        result.append(Variant(
            f"decode_product_{form}", "product.decode_product", f"x:f32* {weight} bias:f32* y:f32* rows:i32 "
            "outputs:i32 inputs:i32 k:i32! sx:i32 sy:i32 zero:f32 group:i32 flags:i32",
            "(cd(outputs, 32), cd(rows, 16))", 4, constants | {"BM": 16, "BN": 32, "BK": 128}, "x is fp32, unpadded",
            stages=4))
    for kind in ("f32", "f16", "bf16"):
        result.append(Variant(f"embed_{kind}", "embed.embed_plain", f"table:{kind}* ids:i32* y:f32* d:i32 sx:i32 sy:i32",
                              f"(m, cd(d, {TILE}))", 4, {"TILE": TILE}, "sx: stride of the table"))
    for form, (constants, code) in FORMS.items():
        if form == "bf16":
            continue
        weight = WEIGHT.format(code)
        constants = constants | {"N": 8, "K": 128}
        result.append(Variant(
            f"embed_{form}", "embed.embed", f"{weight} ids:i32* y:f32* m:i32 d:i32 k:i32! sy:i32 zero:f32 group:i32 "
            "flags:i32", "(cd(m, 8), cd(d, 128))", 4, constants))
    return result


def heads(alibi: bool = False) -> list[tuple[str, dict]]:
    """Variants by head size: exactly 64 or 128, 16-byte aligned rows, no ALiBi; and any up to 128, with all of these."""
    result = [("d64", {"D": 64, "EXACT": True, "ALIBI": False}), ("d128", {"D": 128, "EXACT": True, "ALIBI": False})]
    if alibi:
        result += [("alibi_d64", {"D": 64, "EXACT": True, "ALIBI": True}),
                   ("alibi_d128", {"D": 128, "EXACT": True, "ALIBI": True})]
    return result + [("any", {"D": 128, "EXACT": False, "ALIBI": True})]


def attention() -> list[Variant]:
    result = []

    def add(name, function, arguments, grid, warps, constants, note="", stages=1, alibi=False, only=None):
        for suffix, sizes in heads(alibi):
            if only and suffix != only:
                continue
            text = arguments if sizes["EXACT"] else arguments.replace("!", "")
            result.append(Variant(f"{name}_{suffix}", function, text, grid, warps, constants | sizes, note, stages))

    add("attention", "attention.attention",
        "q:f32*! k:bf16*! v:bf16*! query_positions:i32* key_positions:i32* tiles:i32* slopes:f32* out:f32*! lse:f32* "
        "m:i32 n:i32 group:i32 head_dim:i32! sq:i32! sk:i32! sv:i32! so:i32! window:i32 scale:f32 flags:i32",
        "(cd(m, 128), heads)", 8, {"BM": 128, "BN": 128}, stages=2, alibi=True)
    add("sparse_attention", "sparse.sparse_attention",
        "q:f32*! k:bf16*! v:bf16*! query_positions:i32* key_positions:i32* tiles:i32* lists:i32* blocks:i32* "
        "columns:i32* chosen:i32* slopes:f32* out:f32*! m:i32 n:i32 group:i32 head_dim:i32! sq:i32! sk:i32! sv:i32! "
        "so:i32! words:i32 key_block:i32 window:i32 scale:f32", "(tiles, heads)", 4, {"BM": 64, "BN": 128}, stages=2)
    add("attention_lse", "mass.attention_lse",
        "q:f32*! k:bf16*! query_positions:i32* key_positions:i32* slopes:f32* partial:f32* m:i32 n:i32 group:i32 "
        "head_dim:i32! sq:i32! sk:i32! window:i32 scale:f32", "(cd(m, 64), heads, cd(n, 4096))", 4,
        {"BM": 64, "BN": 128, "PIECE": 4096}, stages=2)
    add("attention_mass", "mass.attention_mass",
        "q:f32*! k:bf16*! query_positions:i32* key_positions:i32* slopes:f32* lse:f32* weights:f32* partial:f32* "
        "m:i32 n:i32 group:i32 head_dim:i32! sq:i32! sk:i32! window:i32 scale:f32 flags:i32", "(cd(n, 128), heads)", 4,
        {"BM": 64, "BN": 128}, stages=2)
    add("attention_scores", "mass.attention_scores",
        "q:f32*! k:bf16*! query_positions:i32* key_positions:i32* slopes:f32* y:f32* m:i32 n:i32 group:i32 head_dim:i32! "
        "sq:i32! sk:i32! sy:i32 window:i32 scale:f32", "(cd(m, 16), heads, cd(n, 128))", 4, {"BM": 16, "BN": 128},
        only="any")
    add("decode_attention", "decode.decode_attention",
        "q:f32*! k:bf16*! v:bf16*! query_positions:i32* key_positions:i32* slopes:f32* ranges:i32* list:i32* "
        "partial:f32* stats:f32* pieces:i32 group:i32 unit:i32 head_dim:i32! sq:i32! sk:i32! sv:i32! scale:f32",
        "(m, heads / unit, pieces)", 4, {"BH": 16, "BN": 64, "PIECE": 256}, stages=2, alibi=True)
    result += [
        Variant("merge_decode", "decode.merge_decode", "partial:f32* stats:f32* ranges:i32* out:f32* pieces:i32 unit:i32 "
                "head_dim:i32 so:i32", "(m, heads)", 4, {"D": 128, "PIECE": 256, "PIECES": 32}),
        Variant("merge_lse", "mass.merge_lse", "partial:f32* lse:f32* pieces:i32 count:i32", "(cd(count, 256))", 4,
                {"TILE": 256}, "count: heads * m"),
        Variant("merge_mass", "mass.merge_mass", "partial:f32* mass:f32* heads:i32 n:i32 flags:i32", "(cd(n, 256))", 4,
                {"TILE": 256}),
        Variant("softmax_rows", "mass.softmax_rows", "y:f32* n:i32 sy:i32", "(rows)", 4, {"TILE": TILE}, "in place"),
    ]
    return result


def scores() -> list[Variant]:
    return [
        Variant("unit_query", "units.unit_query", "q:f32* y:f32* m:i32 group:i32 head_dim:i32 sq:i32",
                "(kv_heads, cd(head_dim, 64))", 4, {"ROWS": 32, "COLUMNS": 64}),
        Variant("unit_scores", "units.unit_scores", "query:f32* k:bf16* y:f32* n:i32 width:i32 heads:i32 unit:i32 sk:i32 "
                "flags:i32", "(cd(n, unit))", 4, {"TILE": TILE}),
    ]


VARIANTS = rows() + conversions() + products() + attention() + scores()
