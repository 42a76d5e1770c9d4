"""old_glibc.py FOLDER [VERSION]: link libraries of an older glibc, made of this machine's.

A program that is linked on this machine asks for the newest version of each function of glibc that this machine has, so
it does not start where glibc is older. FOLDER gets stand-ins for libc, libm, libpthread and libdl with the functions that
glibc VERSION (2.28: RHEL 8, Debian 10) already had, at the newest version of that time. They hold no code: the linker
takes names and versions from them, and the loader of the target the code of its own glibc. What glibc got later is not
there; src/apps/library/portable/ has the little that the project needs of that.
"""

import pathlib
import re
import subprocess
import sys
import tempfile

# Until 2.34 these had libraries of their own, and a program on an older system has to name them.
MOVED = {"libpthread": re.compile(r"pthread_|sem_|__pthread_"), "libdl": re.compile(r"dl(open|close|sym|vsym|error|addr|info|mopen|addr1)$")}
# libpthread has had these in libc too, since before 2.28.
IN_LIBC = re.compile(r"pthread_(attr_(destroy|init|[gs]et(detachstate|inheritsched|schedparam|schedpolicy|scope))|cond(attr)?_(destroy|"
                     r"init)|cond_(broadcast|signal|timedwait|wait)|equal|exit|[gs]etschedparam|mutex_(destroy|init|lock|unlock)|"
                     r"self|setcancel(state|type))$")
SONAMES = {"libc": "libc.so.6", "libm": "libm.so.6", "libpthread": "libpthread.so.0", "libdl": "libdl.so.2"}
SYMBOL = re.compile(r"\s*\d+: [0-9a-f]+\s+(\d+) (\w+)\s+(GLOBAL|WEAK)\s+DEFAULT\s+(\w+) (\w+)@{1,2}(GLIBC_[\d.]+)$")


def number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.removeprefix("GLIBC_").split("."))


def path_of(soname: str) -> str:
    found = subprocess.run(["gcc", f"-print-file-name={soname}"], capture_output=True, text=True, check=True).stdout.strip()
    if not pathlib.Path(found).is_absolute():
        sys.exit(f"old_glibc.py: the compiler does not find {soname}")
    return found


def symbols(soname: str, newest: tuple[int, ...]) -> dict[str, tuple[str, str, int]]:
    """By name: the newest version up to `newest`, the type and the size."""
    text = subprocess.run(["readelf", "--wide", "--dyn-syms", path_of(soname)], capture_output=True, text=True, check=True).stdout
    found = {}
    for line in text.splitlines():
        match = SYMBOL.match(line)
        if not match or match.group(4) == "UND":
            continue
        size, kind, _, _, name, version = match.groups()
        if number(version) <= newest and (name not in found or number(found[name][0]) < number(version)):
            found[name] = (version, kind, int(size))
    return found


def write_library(folder: pathlib.Path, library: str, names: dict[str, tuple[str, str, int]]) -> None:
    versions = sorted({version for version, _, _ in names.values()} | {"GLIBC_2.2.5"}, key=number)
    script = "".join(f"{version} {{ }};\n" for version in versions)
    lines = []
    for at, (name, (version, kind, size)) in enumerate(sorted(names.items())):
        data = kind in ("OBJECT", "TLS")
        section = {"OBJECT": ".data", "TLS": '.section .tdata,"awT"'}.get(kind, ".text")
        lines += [section, f".globl s{at}", f".type s{at}, {'@object' if data else '@function'}", f"s{at}: .zero {max(size, 1) if data else 1}",
                  f".size s{at}, {size if data else 1}", f".symver s{at}, {name}@@{version}, remove"]
    with tempfile.TemporaryDirectory() as scratch:
        source, map_file = pathlib.Path(scratch) / "stub.s", pathlib.Path(scratch) / "stub.map"
        source.write_text("\n".join(lines) + '\n.section .note.GNU-stack,"",@progbits\n')
        map_file.write_text(script)
        subprocess.run(["gcc", "-shared", "-nostdlib", f"-Wl,-soname,{SONAMES[library]}", f"-Wl,--version-script,{map_file}", "-o",
                        folder / SONAMES[library], source], check=True)


def main() -> int:
    folder, version = pathlib.Path(sys.argv[1]), number(sys.argv[2] if len(sys.argv) > 2 else "2.28")
    folder.mkdir(parents=True, exist_ok=True)
    libc = symbols("libc.so.6", version)
    parts = {"libm": symbols("libm.so.6", version), "libc": dict(libc), "libpthread": {}, "libdl": {}}
    for name, what in libc.items():
        for library, pattern in MOVED.items():
            if pattern.match(name) and not IN_LIBC.match(name):
                parts[library][name] = parts["libc"].pop(name)
    for library, names in parts.items():
        write_library(folder, library, names)
        if library != "libc":
            (folder / f"{library}.so").unlink(missing_ok=True)
            (folder / f"{library}.so").symlink_to(SONAMES[library])
    # As the system's libc.so: its static part has what belongs to each program, such as atexit.
    (folder / "libc.so").write_text(f"GROUP ( {folder.resolve() / 'libc.so.6'} {path_of('libc_nonshared.a')} "
                                    f"AS_NEEDED ( {path_of('ld-linux-x86-64.so.2')} ) )\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
