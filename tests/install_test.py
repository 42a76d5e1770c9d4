"""install_test.py BUILD ROOT: a program outside the tree finds the installed library and uses it.

Installs the build into a folder of its own, and builds examples/cpp against that by find_package and by pkg-config.
"""

import gzip
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from fenced import blocks_of

BUILD, ROOT = pathlib.Path(), pathlib.Path()
QUESTION = "What is the code of the blue door?"


def run(*command, **options) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=600, **options)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.prefix = pathlib.Path(cls.folder.name) / "prefix"
        run("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.library = next(cls.prefix.rglob("libcoppice.so")).parent
        cls.document = pathlib.Path(cls.folder.name) / "document.txt"
        cls.document.write_text("The blue door has the code 4711. " * 20, encoding="utf-8")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def asks(self, program: pathlib.Path):
        """The same question twice: the second is answered from what the first left in the cache."""
        said = run(program, ROOT / "models/coppice-mini-f16.gguf", self.document, QUESTION, QUESTION,
                   env={**os.environ, "LD_LIBRARY_PATH": str(self.library)})
        answers = said.split(" of them read before")
        self.assertEqual(len(answers), 3, said)
        self.assertNotIn(", 0 of them", said)

    def test_find_package(self):
        build = pathlib.Path(self.folder.name) / "build"
        run("cmake", "-S", ROOT / "examples/cpp", "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}")
        run("cmake", "--build", build)
        self.asks(build / "ask")

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_pkg_config(self):
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.library / "pkgconfig")}
        flags = run("pkg-config", "--cflags", "--libs", "coppice", env=env).split()
        program = pathlib.Path(self.folder.name) / "ask"
        run("c++", "-std=c++20", ROOT / "examples/cpp/ask.cpp", "-o", program, *flags)
        self.asks(program)

    @unittest.skipUnless(shutil.which("pkg-config"), "no pkg-config")
    def test_the_program_of_the_page(self):
        """The C++ of docs/cpp.md, as it stands there."""
        block = next(block.text for block in blocks_of(ROOT / "docs/cpp.md") if block.language == "cpp")
        folder = pathlib.Path(self.folder.name) / "page"
        folder.mkdir()
        (folder / "page.cpp").write_text(block, encoding="utf-8")
        shutil.copy(ROOT / "models/coppice-mini-f16.gguf", folder / "model.gguf")
        env = {**os.environ, "PKG_CONFIG_PATH": str(self.library / "pkgconfig"), "LD_LIBRARY_PATH": str(self.library)}
        flags = run("pkg-config", "--cflags", "--libs", "coppice", env=env).split()
        run("c++", "-std=c++20", "-Wall", "-Wextra", "-Werror", "page.cpp", "-o", "page", *flags, cwd=folder)
        self.assertIn("first token after", run("./page", cwd=folder, env=env))

    def test_headers_stand_alone(self):
        for header in sorted((self.prefix / "include/coppice").glob("*.h")):
            run("c++", "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{self.prefix}/include", "-x", "c++",
                "-include", header, "/dev/null")
        run("cc", "-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-pedantic", f"-I{self.prefix}/include", "-x", "c",
            "-include", self.prefix / "include/coppice/c.h", "/dev/null")

    def test_the_program_is_installed(self):
        self.assertIn("coppice ", run(self.prefix / "bin/coppice", "--version"))

    def test_the_manual_page_is_that_of_the_program(self):
        page = gzip.decompress((self.prefix / "share/man/man1/coppice.1.gz").read_bytes()).decode()
        self.assertIn(run(self.prefix / "bin/coppice", "--version").split(" (")[0], page)

    def test_only_the_library_s_own_names_are_exported(self):
        names = run("nm", "--dynamic", "--defined-only", "--demangle", self.library / "libcoppice.so").splitlines()
        strange = [name for name in names if "coppice_" not in name and "coppice::Llm" not in name]
        self.assertEqual(strange, [])


if __name__ == "__main__":
    BUILD, ROOT = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
