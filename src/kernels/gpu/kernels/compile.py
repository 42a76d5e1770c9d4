"""Compiles the variants ahead of time: compile.py OUT [--arch 80,90,100,120] [--jobs N] [--only TEXT] [--fake].

Needs Triton, unless --arch is empty, and no GPU. Writes into the folder OUT:
  cubins.bin     all cubins, one after the other
  cubins.inc     a row of a C++ table for each: name, entry point, architecture, memory, warps, arguments, place
  manifest.json  the same and what ptxas made of it: registers, stack
  cache/         a cubin for each variant and architecture, named by the hash of all it depends on, so a second run
                 compiles only what has changed

With --fake, the table also has every variant for architecture 0, the device of ../fake, which computes a kernel that it
knows by name.
"""

import argparse
import ast
import concurrent.futures
import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).parent
# Compute capability, and the dynamic shared memory that a block may have: CUDA C++ Programming Guide, technical
# specifications per compute capability. Cubins for 8.0 also run on 8.6 and 8.9, where the limit is 99 KiB instead of 163.
SHARED = {80: 99 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
# Products and sums are fused where the source says fma and nowhere else, so the bits do not depend on the compiler.
os.environ["TRITON_DEFAULT_FP_FUSION"] = "0"
os.environ["TRITON_DISABLE_LINE_INFO"] = "1"  # a third of a cubin's bytes
# Where a variant's limit of registers holds: elsewhere operands of the tensor cores take registers too, and it would spill.
# There the limit is the hardware's. It is named because ptxas, left alone, gave one kernel 32 registers and 6.6 kB of stack.
ROOMY = (90, 100)
# A letter for each type of argument in cubins.inc: p pointer, i int32, f float.
LETTERS = {"i32": "i", "f32": "f"}
FAKE = b"fake\0"  # the image that ../fake loads
TRITON_TYPES = {"f32": "fp32", "f16": "fp16"}


def sources_of(module: str, found: dict | None = None) -> dict[str, bytes]:
    """The text of a module of this folder and of those that it imports."""
    found = {} if found is None else found
    path = HERE / f"{module}.py"
    if module in found or not path.exists():
        return found
    found[module] = path.read_bytes()
    for match in re.finditer(rb"^(?:from|import) (\w+)", found[module], re.MULTILINE):
        sources_of(match.group(1).decode(), found)
    return found


@functools.cache
def meaning(source: bytes) -> str:
    """A source without its comments and descriptions, which do not change what is compiled."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def key_of(variant, architecture: int, triton_version: str) -> str:
    state = hashlib.sha256()
    sources = sources_of(variant.function.split(".")[0])
    for name in sorted(sources):
        state.update(f"{name}\0{meaning(sources[name])}\0".encode())
    state.update(repr((variant.function, variant.arguments, variant.warps, variant.stages, variant.registers, variant.constants,
                       architecture, SHARED[architecture], triton_version)).encode())
    state.update(meaning(inspect.getsource(compile_one).encode()).encode())  # the way it compiles counts too
    return state.hexdigest()[:24]


def resources(cubin: pathlib.Path) -> dict[str, int]:
    """Registers per thread and bytes of stack, from the cuobjdump that Triton brings along."""
    import triton
    tool = pathlib.Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    text = subprocess.run([tool, "--dump-resource-usage", cubin], check=True, capture_output=True, text=True).stdout
    values = dict(re.findall(r"(REG|STACK|LOCAL):(\d+)", text))
    return {"registers": int(values["REG"]), "stack": int(values["STACK"]), "local": int(values["LOCAL"])}


def compile_one(variant, architecture: int, path: pathlib.Path) -> None:
    """Writes the cubin and, beside it, a JSON file of its facts."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    module, function = variant.function.split(".")
    parsed = variant.parsed()
    signature = {}
    for name, kind, _ in parsed:
        pointer = "*" if kind.endswith("*") else ""
        signature[name] = pointer + TRITON_TYPES.get(kind.rstrip("*"), kind.rstrip("*"))
    signature |= {name: "constexpr" for name in variant.constants}
    aligned = {(index,): [["tt.divisibility", 16]] for index, argument in enumerate(parsed) if argument[2]}
    started = time.monotonic()
    source = ASTSource(fn=getattr(importlib.import_module(module), function), signature=signature,
                       constexprs=variant.constants, attrs=aligned)
    # Fewer stages of copies in flight where an architecture has less shared memory.
    for stages in range(variant.stages, 0, -1):
        compiled = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options={
            "num_warps": variant.warps, "num_stages": stages, "maxnreg": variant.registers or None})
        if compiled.metadata.shared <= SHARED[architecture]:
            break
    else:
        raise RuntimeError(f"{compiled.metadata.shared} bytes of shared memory")
    seconds = time.monotonic() - started
    if compiled.metadata.global_scratch_size or compiled.metadata.profile_scratch_size:
        raise RuntimeError(f"{variant.name} needs scratch memory, which the host does not provide")
    path.write_bytes(compiled.asm["cubin"])
    facts = {"name": variant.name, "entry": compiled.metadata.name, "architecture": architecture,
             "shared": compiled.metadata.shared, "stages": stages, "warps": compiled.metadata.num_warps,
             "arguments": letters(variant),
             "bytes": len(compiled.asm["cubin"]), "seconds": round(seconds, 2)} | resources(path)
    path.with_suffix(".json").write_text(json.dumps(facts))


def compile_apart(work: tuple) -> list[str]:
    """In a worker process, with a cache of its own: Triton's default is in the user's home. Returns the fault, if any."""
    variant, architecture, path = work
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TRITON_CACHE_DIR"] = folder
        sys.path.insert(0, str(HERE))
        try:
            compile_one(variant, architecture, path)
        except Exception as error:
            return [f"{variant.name} for sm_{architecture}: {type(error).__name__}: {error}"]
    return []


def letters(variant) -> str:
    return "".join("p" if kind.endswith("*") else LETTERS[kind] for _, kind, _ in variant.parsed())


def table_row(facts: dict, offset: int) -> str:
    return (f'    {{"{facts["name"]}", "{facts["entry"]}", {facts["architecture"]}, {facts["shared"]}, {facts["warps"]}, '
            f'"{facts["arguments"]}", {offset}, {facts["bytes"]}}},\n')


def write(out: pathlib.Path, paths: list[pathlib.Path], fakes: list) -> list[dict]:
    """The files of OUT: of the cubins at `paths`, and of the variants `fakes` for the tests' device."""
    rows, table, blob = [], [], bytearray()
    for path in paths:
        facts = json.loads(path.with_suffix(".json").read_text())
        blob += bytes(-len(blob) % 16)  # the driver reads an ELF file in place
        table.append(table_row(facts, len(blob)))
        rows.append(facts)
        blob += path.read_bytes()
    place = len(blob)
    for variant in fakes:
        table.append(table_row({"name": variant.name, "entry": variant.name, "architecture": 0, "shared": 0,
                                "warps": variant.warps, "arguments": letters(variant), "bytes": len(FAKE)}, place))
    blob += FAKE if fakes else b""
    (out / "cubins.bin").write_bytes(blob)
    (out / "cubins.inc").write_text("".join(table))
    (out / "manifest.json").unlink(missing_ok=True)
    if rows:
        (out / "manifest.json").write_text(json.dumps(rows, indent=1))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--arch", default=",".join(map(str, SHARED)))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--only", default="", help="variants whose name contains this")
    parser.add_argument("--fake", action="store_true", help="the rows of the tests' device too")
    options = parser.parse_args()
    import variants
    architectures = [int(text) for text in options.arch.split(",") if text]
    version = importlib.import_module("triton").__version__ if architectures else ""
    started = time.monotonic()
    cache = options.out / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    paths, missing = [], []
    for variant in variants.VARIANTS:
        for architecture in architectures:
            if options.only not in variant.name:
                continue
            chosen = variant if architecture in ROOMY else dataclasses.replace(variant, registers=255)
            path = cache / f"{variant.name}-{architecture}-{key_of(chosen, architecture, version)}.cubin"
            paths.append(path)
            if not path.with_suffix(".json").exists():
                missing.append((chosen, architecture, path))
    jobs = max(1, min(options.jobs, len(missing)))
    with concurrent.futures.ProcessPoolExecutor(jobs) as pool:
        faults = sum(pool.map(compile_apart, missing), [])
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    for old in set(cache.iterdir()) - set(paths) - {path.with_suffix(".json") for path in paths}:
        if architectures and not options.only:
            old.unlink()
    rows = write(options.out, paths, variants.VARIANTS if options.fake else [])
    print(f"{len(missing)} of {len(rows)} kernels compiled in {time.monotonic() - started:.0f} s, "
          f"{resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s of CPU time; "
          f"{sum(row['bytes'] for row in rows)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
