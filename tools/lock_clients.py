"""lock_clients.py [NAME]: writes tools/NAME-lock.txt (clients, router), every package that tools/NAME-requirements.txt needs, with
its version and checksum, as pip would install them here. To be run again when the requirements change."""

import json
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent
NAME = sys.argv[1] if len(sys.argv) > 1 else "clients"

with tempfile.NamedTemporaryFile(suffix=".json") as report:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", report.name,
                    "-r", TOOLS / f"{NAME}-requirements.txt"], check=True)
    installs = json.load(report)["install"]

lines = [f"# Made by tools/lock_clients.py from {NAME}-requirements.txt, for the Python and CPU of Debian 12 on x86-64."]
for item in sorted(installs, key=lambda item: item["metadata"]["name"].lower()):
    checksum = item["download_info"]["archive_info"]["hashes"]["sha256"]
    lines.append(f"{item['metadata']['name']}=={item['metadata']['version']} --hash=sha256:{checksum}")
(TOOLS / f"{NAME}-lock.txt").write_text("\n".join(lines) + "\n")
