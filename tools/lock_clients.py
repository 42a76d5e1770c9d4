"""lock_clients.py: writes tools/clients-lock.txt, every package that tools/clients-requirements.txt needs, with its
version and checksum, as pip would install them here. To be run again when the requirements change."""

import json
import pathlib
import subprocess
import sys
import tempfile

TOOLS = pathlib.Path(__file__).resolve().parent

with tempfile.NamedTemporaryFile(suffix=".json") as report:
    subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--dry-run", "--ignore-installed", "--report", report.name,
                    "-r", TOOLS / "clients-requirements.txt"], check=True)
    installs = json.load(report)["install"]

lines = ["# Made by tools/lock_clients.py from clients-requirements.txt, for the Python and CPU of Debian 12 on x86-64."]
for item in sorted(installs, key=lambda item: item["metadata"]["name"].lower()):
    checksum = item["download_info"]["archive_info"]["hashes"]["sha256"]
    lines.append(f"{item['metadata']['name']}=={item['metadata']['version']} --hash=sha256:{checksum}")
(TOOLS / "clients-lock.txt").write_text("\n".join(lines) + "\n")
