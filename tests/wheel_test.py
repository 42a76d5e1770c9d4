"""wheel_test.py ROOT: from the wheel's file to an answer, where nothing but Python is installed. Label long.

Takes dist/coppice_llm-*.whl, which `make wheel` builds; skips (77) without one. With debootstrap and root it also runs in
the system that COPPICE_OLD_SYSTEM names, or in a Debian 11 that it installs into a folder of its own; and the program of
a tarball, if dist/ has one.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

ROOT = pathlib.Path()
WHEEL = pathlib.Path()
# The five lines of README, with a program's answer beside it.
SCRIPT = """
import sys
from coppice_llm import LLM
with LLM(sys.argv[1], prune="coppice:min=0", threads=2) as llm:
    document = llm.read(open(sys.argv[2]).read())
    first = document.ask("Which door is blue?", max_tokens=8)
    again = document.ask("Which door is blue?", max_tokens=8)
    assert str(first) == str(again) and again.cached_tokens > 0.5 * again.prompt_tokens, again.timings
    assert first.prune["active"], first.prune
print("answered", first.completion_tokens)
"""


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=1200, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.document = cls.folder / "document.txt"
        cls.document.write_text("The blue door has the code 4711. " * 30, encoding="utf-8")
        cls.script = cls.folder / "ask.py"
        cls.script.write_text(SCRIPT, encoding="utf-8")
        shutil.copy(ROOT / "models/coppice-mini-f16.gguf", cls.folder / "model.gguf")

    def installed(self) -> pathlib.Path:
        """A virtual environment with the wheel alone."""
        folder = self.folder / "venv"
        if not folder.exists():
            run(sys.executable, "-m", "venv", folder)
            run(folder / "bin/pip", "install", "--no-index", WHEEL)
        return folder / "bin"

    def test_name_says_what_it_runs_on_and_it_is_small(self):
        self.assertRegex(WHEEL.name, r"^coppice_llm-[\d.]+-py3-none-manylinux_2_(2[0-8]|1\d)_x86_64[.\w]*\.whl$")
        self.assertLess(WHEEL.stat().st_size, 30 << 20)
        names = zipfile.ZipFile(WHEEL).namelist()
        self.assertEqual([name for name in names if ".so" in name], ["coppice_llm/libcoppice.so"])
        self.assertIn("coppice_llm/py.typed", names)

    def test_it_lists_what_it_holds_of_others_with_their_licences(self):
        wheel = zipfile.ZipFile(WHEEL)
        info = next(name.split("/")[0] for name in wheel.namelist() if ".dist-info/" in name)
        bill = json.loads(wheel.read(f"{info}/sboms/coppice.cdx.json"))
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.6"))
        parts = {part["name"]: part for part in bill["components"]}
        linked = {name for name, part in parts.items() if "archive" in part["properties"][0]["value"]}
        self.assertEqual({re.sub(r"-\d+-dev|-dev", "", name) for name in linked},
                         {"libexpat1", "libgcc", "libpcre2", "libstdc++", "liburing", "libutf8proc", "libxxhash"})
        self.assertLessEqual({"libfmt-dev", "libcli11-dev", "nlohmann-json3-dev", "libeigen3-dev"}, set(parts))
        for name, part in parts.items():
            self.assertTrue(part["version"] and part["licenses"][0]["expression"], name)
            self.assertIn(b"icense", wheel.read(f"{info}/licenses/{name}.txt"), name)
        self.assertIn(f"{info}/licenses/LICENSE", wheel.namelist())

    def test_answers_on_every_isa_without_compilers(self):
        python = self.installed()
        for isa in ["", "scalar", "avx2"]:
            said = run(python / "python", self.script, self.folder / "model.gguf", self.document,
                       env={"PATH": str(python), **({"COPPICE_ISA": isa} if isa else {})})
            self.assertEqual(said, "answered 8\n", isa)

    def test_the_program_comes_along(self):
        python = self.installed()
        said = run(python / "coppice", "run", "-m", self.folder / "model.gguf", "-p", "Once upon a time", "-n", "4", "--temp", "0")
        self.assertTrue(said.strip())

    @unittest.skipUnless(hasattr(os, "geteuid") and os.geteuid() == 0, "chroot needs root")
    def test_an_older_system_loads_it(self):
        named = os.environ.get("COPPICE_OLD_SYSTEM")
        if not named and not shutil.which("debootstrap"):
            self.skipTest("no debootstrap, and COPPICE_OLD_SYSTEM names no system")
        system = pathlib.Path(named) if named else self.folder / "bullseye"
        if not named:
            run("debootstrap", "--variant=minbase", "--include=python3", "bullseye", system)
        inside = pathlib.Path(tempfile.mkdtemp(dir=system / "tmp"))
        self.addCleanup(shutil.rmtree, inside)
        zipfile.ZipFile(WHEEL).extractall(inside / "site")  # what pip does with a wheel, which a minimal system may lack
        for name in ["document.txt", "ask.py", "model.gguf"]:
            shutil.copy(self.folder / name, inside)
        at = f"/tmp/{inside.name}"
        said = run("chroot", system, "env", f"PYTHONPATH={at}/site", "python3", f"{at}/ask.py", f"{at}/model.gguf",
                   f"{at}/document.txt")
        self.assertEqual(said, "answered 8\n")
        for tarball in sorted(ROOT.glob("dist/coppice-*-linux-x86_64.tar.gz")):  # `make tarball`
            run("tar", "-xzf", tarball, "-C", inside)
            program = pathlib.Path("/", next(inside.glob("coppice-*/bin/coppice")).relative_to(system))
            origin = f"LD_ORIGIN_PATH={program.parent}"  # the loader would read it from /proc, which is not mounted here
            said = run("chroot", system, "env", origin, program, "run", "-m", f"{at}/model.gguf", "-p", "Once upon a time", "-n", "4",
                       "--temp", "0")
            self.assertTrue(said.strip())


if __name__ == "__main__":
    ROOT = pathlib.Path(sys.argv[1])
    found = sorted(ROOT.glob("dist/coppice_llm-*manylinux*.whl"))
    if not found:
        print("skipped: dist/ has no wheel; make wheel builds one")
        sys.exit(77)
    WHEEL = found[-1]
    unittest.main(argv=sys.argv[:1], verbosity=2)
