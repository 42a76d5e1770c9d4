"""wheel_contents.py BUILD OUT: what a portable build's library holds of others, for the folder .dist-info of a wheel.

OUT/sboms/coppice.cdx.json lists them as CycloneDX 1.6, with the versions of the Debian packages they come from (PEP 770);
OUT/licenses has the licence of each. Nothing of it is a list that somebody keeps: the headers are those that the compiler
read, by the build's own record, and the archives those that the linker read (cmake/Portable.cmake).
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import uuid

import sbom

# Of the C library a program gets declarations and a few lines of start-up code; it is loaded from the system it runs on.
SYSTEM = ("libc6-dev", "linux-libc-dev")
COMPILERS_OWN = re.compile(r"lib(stdc\+\+|gcc)-\d+-dev")
# libzmq3-dev has the declarations of a library that is loaded where it is installed.
LOADED = ("libzmq3-dev",)


def files_of(build: pathlib.Path) -> dict[str, set[str]]:
    """The files of others, by how they came in."""
    listed = sbom.output("ninja", "-C", os.fspath(build), "-t", "deps")
    linked = (build / "libcoppice.so.d").read_text(encoding="utf-8").replace("\\\n", " ")
    return {"header": set(re.findall(r"^ +(/usr/\S+)$", listed, re.MULTILINE)),
            "archive": set(re.findall(r"(?<=\s)(/usr/\S+\.a)(?=\s|$|:)", linked))}


def packages_of(paths: set[str]) -> dict[str, list[str]]:
    """The Debian packages that have these files."""
    real = {os.path.realpath(path) for path in paths}
    said = subprocess.run(["dpkg-query", "-S", *sorted(real)], capture_output=True, text=True).stdout
    found: dict[str, list[str]] = {}
    for names, path in re.findall(r"^(.+?): (/\S+)$", said, re.MULTILINE):
        found.setdefault(names.split(",")[0].split(":")[0], []).append(path)
    missing = real - {path for paths in found.values() for path in paths}
    if missing:
        raise SystemExit(f"wheel_contents: no package has {', '.join(sorted(missing)[:5])}")
    return found


def license_of(name: str, by_name: dict[str, str]) -> str:
    if COMPILERS_OWN.fullmatch(name):
        return "GPL-3.0-or-later WITH GCC-exception-3.1"
    found = by_name.get(name, "NOASSERTION")
    if found == "NOASSERTION":
        raise SystemExit(f"wheel_contents: docs/dependencies.md gives no licence of {name}")
    return found


def component(name: str, version: str, license_id: str, how: list[str]) -> dict:
    purl = f"pkg:deb/debian/{name}@{version.replace('+', '%2B').replace(':', '%3A')}"
    return {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
            "licenses": [{"expression": license_id}],
            "properties": [{"name": "coppice:linked", "value": "+".join(how)}]}


def bill(build: pathlib.Path) -> dict:
    by_name, how = sbom.licenses(), {}
    for kind, paths in files_of(build).items():
        for name in packages_of(paths):
            if name not in SYSTEM + LOADED:
                how.setdefault(name, []).append(kind)
    parts = []
    for name in sorted(how):
        version = sbom.output("dpkg-query", "-W", "-f", "${Version}\n", name).splitlines()[0]
        parts.append(component(name, version, license_of(name, by_name), how[name]))
    version = re.search(r"VERSION ([\d.]+)", (sbom.ROOT / "CMakeLists.txt").read_text().split("project(")[1]).group(1)
    own = f"pkg:pypi/coppice-llm@{version}"
    serial = uuid.uuid5(uuid.NAMESPACE_URL, own + json.dumps(parts))  # equal builds have equal bills
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "serialNumber": f"urn:uuid:{serial}", "version": 1,
            "metadata": {"component": {"type": "library", "bom-ref": own, "name": "coppice-llm", "version": version, "purl": own,
                                       "licenses": [{"expression": "Apache-2.0"}]}},
            "components": parts,
            "dependencies": [{"ref": own, "dependsOn": [part["bom-ref"] for part in parts]}]}


def main() -> int:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    build, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    shutil.rmtree(out, ignore_errors=True)
    found = bill(build)
    (out / "sboms").mkdir(parents=True)
    (out / "sboms/coppice.cdx.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    (out / "licenses").mkdir()
    for part in found["components"]:
        shutil.copyfile(f"/usr/share/doc/{part['name']}/copyright", out / "licenses" / f"{part['name']}.txt")
    return 0


if __name__ == "__main__":
    sys.exit(main())
