"""What the compiler made of the kernels: machine_code.py PYTHON CUBINS [--check PAGE].

CUBINS is the folder that compile.py wrote, PYTHON one that has Triton, which brings nvdisasm along. Fails if
- a product or an attention kernel of prefill does not multiply on its architecture's tensor cores: warpgroup MMA on sm_90,
  tcgen05 on sm_100, warp MMA on sm_80 and sm_120;
- on sm_90, a loop that multiplies on the tensor cores spills registers, outside the variants for odd head sizes.
Prints a table of registers, stack and shared memory; with --check, fails if the table in PAGE says something else of the
architectures in CUBINS. Exits with 77 if there are no cubins.
"""

import concurrent.futures
import json
import pathlib
import re
import subprocess
import sys
import tempfile

HEADING = "## Registers and memory\n\n"
# The instruction that multiplies, by architecture, in kernels whose tiles fill it.
INSTRUCTION = {80: "HMMA", 90: "HGMMA", 100: "UTCHMMA", 120: "HMMA"}
PREFILL = re.compile(r"product_|attention_(alibi_)?(d64|d128|any)$|sparse_attention_|attention_(lse|mass)_")
# They take unaligned rows and heads of any size, with an address for every value.
FALLBACK = re.compile(r"_any$")
LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+ )?([A-Z0-9_]+)([^;]*);")
LABEL = re.compile(r"^\s*(\.L_x_\d+):")


def instructions(text: str) -> tuple[list[tuple[str, str]], dict[str, int]]:
    """Opcodes with operands, and where labels point."""
    found, labels = [], {}
    for line in text.splitlines():
        label = LABEL.match(line)
        if label:
            labels[label.group(1)] = len(found)
        match = LINE.search(line)
        if match:
            found.append((match.group(1), match.group(2)))
    return found, labels


def spilling_loop(code: list[tuple[str, str]], labels: dict[str, int], multiply: str) -> bool:
    """Whether some innermost loop that multiplies also reads or writes its stack."""
    for end, (opcode, operands) in enumerate(code):
        target = re.search(r"\((\.L_x_\d+)\)", operands)
        if opcode != "BRA" or not target or labels.get(target.group(1), end + 1) > end:
            continue
        body = code[labels[target.group(1)]:end]
        backward = any(name == "BRA" and (t := re.search(r"\((\.L_x_\d+)\)", rest)) and labels[target.group(1)] < labels.get(
            t.group(1), 0) <= labels[target.group(1)] + at for at, (name, rest) in enumerate(body))
        names = [name for name, _ in body]
        if not backward and multiply in names and ("LDL" in names or "STL" in names):
            return True
    return False


def faults_of(row: dict, text: str) -> list[str]:
    name, architecture = row["name"], row["architecture"]
    code, labels = instructions(text)
    multiply = INSTRUCTION[architecture]
    what = f"{name} for sm_{architecture}"
    faults = []
    if multiply not in {opcode for opcode, _ in code}:
        faults.append(f"{what} has no {multiply}")
    if architecture == 90 and spilling_loop(code, labels, multiply):
        faults.append(f"{what} spills in a loop")
    return faults


def checked(rows: list[dict], blob: bytes) -> list[dict]:
    """The kernels that have to fill the tensor cores, each with its bytes."""
    offset, result = 0, []
    for row in rows:
        offset += -offset % 16
        if PREFILL.match(row["name"]) and not FALLBACK.search(row["name"]):
            result.append(row | {"cubin": blob[offset:offset + row["bytes"]]})
        offset += row["bytes"]
    return result


def disassembled(tool: str, cubin: bytes) -> str:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


def table(rows: list[dict]) -> str:
    """One line a kernel: registers / bytes of stack / KiB of shared memory on each architecture."""
    architectures = sorted({row["architecture"] for row in rows})
    lines = ["| kernel | " + " | ".join(f"sm_{a}" for a in architectures) + " |", "|---|" + "---|" * len(architectures)]
    by = {(row["name"], row["architecture"]): row for row in rows}
    for name in dict.fromkeys(row["name"] for row in rows):
        cells = []
        for architecture in architectures:
            row = by[name, architecture]
            cells.append(f"{row['registers']} / {row['stack']} / {row['shared'] / 1024:.0f}")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def columns(text: str, names: list[str]) -> list[list[str]]:
    """The columns of these names of the table in a page, a row each; none where the table lacks one of them."""
    lines = text.partition(HEADING)[2].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    if not rows or not set(names) <= set(rows[0]):
        return []
    return [[row[rows[0].index(name)] for name in names] for row in rows]


def main() -> int:
    python, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    if not (folder / "manifest.json").exists():
        print(f"skipped: {folder} has no kernels; a build with COPPICE_TRITON_PYTHON compiles them")
        return 77
    rows = json.loads((folder / "manifest.json").read_text())
    blob = (folder / "cubins.bin").read_bytes()
    tool = subprocess.run([python, "-c", "import triton, pathlib; print(pathlib.Path(triton.__file__).parent)"], check=True,
                          capture_output=True, text=True).stdout.strip() + "/backends/nvidia/bin/nvdisasm"
    with concurrent.futures.ThreadPoolExecutor() as pool:
        faults = sum(pool.map(lambda row: faults_of(row, disassembled(tool, row["cubin"])), checked(rows, blob)), [])
    if "--check" not in sys.argv:
        print(table(rows), end="")
    else:
        page, ours = pathlib.Path(sys.argv[-1]).read_text(encoding="utf-8"), HEADING + table(rows)
        names = ["kernel", *sorted({f"sm_{row['architecture']}" for row in rows})]
        if columns(page, names) != columns(ours, names):
            faults.append(f"the table of {sys.argv[-1]} is not that of these kernels: print it with machine_code.py")
    print("\n".join(faults), file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
