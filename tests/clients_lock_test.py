"""Every package from PyPI that tests install is pinned to one version and one checksum.

    clients_lock_test.py SOURCE_DIR
"""

import pathlib
import re
import sys

tools = pathlib.Path(sys.argv[1]) / "tools"
lines = [line for line in (tools / "clients-lock.txt").read_text().splitlines() if not line.startswith("#")]
pinned = {}
for line in lines:
    match = re.fullmatch(r"([\w.-]+)==([\w.+!]+) --hash=sha256:[0-9a-f]{64}", line)
    assert match, f"not NAME==VERSION --hash=sha256:...: {line}"
    pinned[re.sub(r"[-_.]+", "-", match[1]).lower()] = match[2]
assert len(pinned) == len(lines) > 0, "a package is pinned twice"
for line in (tools / "clients-requirements.txt").read_text().splitlines():
    if line and not line.startswith("#"):
        name, version = re.fullmatch(r"([\w.-]+)(?:\[\w+\])?==([\w.+!]+)", line).groups()
        assert pinned.get(re.sub(r"[-_.]+", "-", name).lower()) == version, f"clients-lock.txt does not have {line}"
assert "--require-hashes" in (tools / "setup_clients.sh").read_text(), "pip would not check them"
assert re.search(r"^sha256=[0-9a-f]{64}$", (tools / "fetch_models.sh").read_text(), re.MULTILINE), "the model has no checksum"
print(f"{len(pinned)} packages are pinned")
