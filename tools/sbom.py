"""sbom.py PROGRAM: prints a bill of materials of a built program as SPDX 2.3 in JSON.

The shared libraries come from the program's own headers, the header-only ones from the table in docs/dependencies.md;
versions are those of the Debian packages that are installed here. Run it where the program was built.
"""

import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
HEADER_ONLY = ("nlohmann-json3-dev", "libcli11-dev", "libboost1.81-dev", "libeigen3-dev")
LICENSE_IDS = {"MIT": "MIT", "BSD-2-Clause": "BSD-2-Clause", "BSD-3-Clause": "BSD-3-Clause", "BSL-1.0": "BSL-1.0", "MPL-2.0": "MPL-2.0",
               "Apache-2.0": "Apache-2.0", "LGPL-2.1 or MIT": "LGPL-2.1-only OR MIT",
               "LGPL-3.0 with a linking exception": "LGPL-3.0-or-later WITH LGPL-3.0-linking-exception"}

# What every program of Debian's compiler is linked with.
COMPILERS_OWN = {"libc": "LGPL-2.1-or-later", "libgcc-s": "GPL-3.0-or-later WITH GCC-exception-3.1",
                 "libstdc++": "GPL-3.0-or-later WITH GCC-exception-3.1"}


# What the program loads when an option asks for it, if it was built with that.
LOADED = ("libzmq.so.5",)


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def licenses() -> dict[str, str]:
    """By the package's name in the table: the first licence in brackets behind it."""
    found = {}
    for line in (ROOT / "docs/dependencies.md").read_text(encoding="utf-8").splitlines():
        cell = line.split("|")[1] if line.startswith("| `") else ""
        for begin in re.finditer(r"`([^`]+)`", cell):
            texts = re.findall(r"\(([^()]*)\)", cell[begin.end():])
            known = (LICENSE_IDS[part] for text in texts for part in [text, text.split(", ")[-1]] if part in LICENSE_IDS)
            found[begin.group(1)] = next(known, "NOASSERTION")
    return found


def shared_libraries(program: str) -> list[str]:
    """The Debian packages of the libraries that the program asks for itself, or loads where they are installed."""
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", output("readelf", "--wide", "--dynamic", program))
    paths = dict(re.findall(r"^\s*(\S+) => (\S+)", output("ldd", program), re.MULTILINE))
    content = pathlib.Path(program).read_bytes()
    installed = dict(re.findall(r"^\s*(\S+) \(.*\) => (\S+)", output("/sbin/ldconfig", "-p"), re.MULTILINE))
    loaded = [name for name in LOADED if name.encode() in content and name in installed]
    needed, paths = needed + loaded, {**installed, **paths}
    # dpkg knows a file by the name with or without /usr, where /lib is a link.
    names = {}
    for library in needed:
        path = paths.get(library, "")
        for known in {path, os.path.realpath(path)} if path else ():
            names |= {known: library, known.removeprefix("/usr"): library}
    found = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True).stdout
    owners = {names[path]: package for package, path in re.findall(r"^([^:\n]+):.*? (/\S+)$", found, re.MULTILINE) if path in names}
    missing = [library for library in needed if library not in owners and not library.startswith("ld-linux")]
    if missing:
        raise SystemExit(f"sbom: no package has {', '.join(missing)}")
    packages = set(owners.values())
    return sorted(packages)


def package(name: str, version: str, license_id: str, **more: object) -> dict:
    return {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "versionInfo": version,
            "downloadLocation": "NOASSERTION", "licenseConcluded": "NOASSERTION", "licenseDeclared": license_id,
            "copyrightText": "NOASSERTION", "filesAnalyzed": False, **more}


def debian_package(name: str, by_name: dict[str, str]) -> dict:
    version = output("dpkg-query", "-W", "-f", "${Version}", name).strip()
    # A library's package is listed under its -dev package: libfmt9 under libfmt-dev, libzmq5 under libzmq3-dev.
    developed = (by_name[dev] for dev in by_name if dev.endswith("-dev") and
                 re.fullmatch(re.escape(dev[:-4].rstrip("0123456789")) + r"[\d.-]*", name))
    declared = by_name.get(name) or next(developed, None) or COMPILERS_OWN.get(re.sub(r"[\d.-]+$", "", name), "NOASSERTION")
    locator = f"pkg:deb/debian/{name}@{version}"
    return package(name, version, declared, externalRefs=[
        {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": locator}])


def bill(program: str) -> dict:
    version = re.search(r"VERSION ([\d.]+)", (ROOT / "CMakeLists.txt").read_text().split("project(")[1]).group(1)
    digest = hashlib.sha256(pathlib.Path(program).read_bytes()).hexdigest()
    # A date that a build sets makes equal programs' bills equal.
    epoch = os.environ.get("SOURCE_DATE_EPOCH")
    made = datetime.datetime.fromtimestamp(int(epoch), datetime.timezone.utc) if epoch else datetime.datetime.now(datetime.timezone.utc)
    by_name = licenses()
    linked, included = shared_libraries(program), list(HEADER_ONLY)
    packages = [package("coppice", version, "Apache-2.0", primaryPackagePurpose="APPLICATION",
                        checksums=[{"algorithm": "SHA256", "checksumValue": digest}])]
    packages += [debian_package(name, by_name) for name in linked + included]
    ids = [p["SPDXID"] for p in packages]
    relations = [{"spdxElementId": "SPDXRef-DOCUMENT", "relationshipType": "DESCRIBES", "relatedSpdxElement": ids[0]}]
    for number, spdx_id in enumerate(ids[1:]):
        kind = "DYNAMIC_LINK" if number < len(linked) else "STATIC_LINK"
        relations.append({"spdxElementId": ids[0], "relationshipType": kind, "relatedSpdxElement": spdx_id})
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"coppice-{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/coppice-{version}-{digest[:32]}",
            "creationInfo": {"created": made.strftime("%Y-%m-%dT%H:%M:%SZ"), "creators": ["Tool: tools/sbom.py"]},
            "packages": packages, "relationships": relations}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    print(json.dumps(bill(sys.argv[1]), indent=1))
