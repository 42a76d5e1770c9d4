"""sbom_test.py PROGRAM ROOT: the bill of materials names every library that the program asks for. Skips off Debian."""

import json
import re
import shutil
import subprocess
import sys

PROGRAM, ROOT = sys.argv[1:]

if not shutil.which("dpkg-query"):
    print("skipped: no dpkg")
    sys.exit(77)
made = subprocess.run([sys.executable, ROOT + "/tools/sbom.py", PROGRAM], capture_output=True, text=True, check=True)
bill = json.loads(made.stdout)
packages = {package["name"]: package for package in bill["packages"]}
needed = subprocess.run(["readelf", "--wide", "--dynamic", PROGRAM], capture_output=True, text=True, check=True).stdout
for library in re.findall(r"\(NEEDED\).*\[lib(\w+)", needed):
    stem = {"c": "libc6", "m": "libc6", "gcc_s": "libgcc-s1", "OpenCL": "ocl-icd"}.get(library, "lib" + library)
    assert any(name.startswith(stem) for name in packages), f"{library} is not in {sorted(packages)}"
for package in packages.values():
    assert package["versionInfo"] and package["licenseDeclared"] != "NOASSERTION", package
related = {relation["relatedSpdxElement"] for relation in bill["relationships"]}
assert related == {package["SPDXID"] for package in packages.values()}, related
print(f"{len(packages)} packages")
