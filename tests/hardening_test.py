"""hardening_test.py PROGRAM: reads back from a release's binary what cmake/Hardening.cmake asked the compiler and the linker for."""

import pathlib
import platform
import re
import subprocess
import sys
import unittest

PROGRAM = ""


def readelf(*options: str) -> str:
    return subprocess.run(["readelf", "--wide", *options, PROGRAM], capture_output=True, text=True, check=True).stdout


class Hardening(unittest.TestCase):
    def test_position_independent(self):
        self.assertRegex(readelf("--file-header"), r"Type:\s+DYN")
        self.assertRegex(readelf("--dynamic"), r"FLAGS_1.*\bPIE\b")

    def test_relocations_are_read_only(self):
        self.assertIn("GNU_RELRO", readelf("--segments"))
        self.assertRegex(readelf("--dynamic"), r"FLAGS_1.*\bNOW\b")

    def test_no_memory_is_writable_and_executable(self):
        segments = readelf("--segments")
        self.assertRegex(segments, r"GNU_STACK.*\sRW\s")
        self.assertNotRegex(segments, r"LOAD.*\sRWE\s")

    def test_stack_protector_and_fortified_calls(self):
        symbols = readelf("--dyn-syms")
        self.assertIn("__stack_chk_fail", symbols)
        # At least one call was checked; which ones depends on what the compiler could prove at compile time.
        self.assertRegex(symbols, r"__\w+_chk\b(?<!__stack_chk)")

    def test_no_path_of_the_source(self):
        """-ffile-prefix-map: messages of checks name files of the source, not where it lay when it was built."""
        source = pathlib.Path(__file__).resolve().parent.parent
        self.assertNotIn(f"{source}/src/".encode(), pathlib.Path(PROGRAM).read_bytes())

    def test_libraries(self):
        """What few use is loaded when it is asked for: libzmq for KV events, a GPU's driver."""
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", readelf("--dynamic"))
        self.assertIn("libc.so.6", needed)
        for name in ("zmq", "sodium", "pgm", "gssapi", "krb5", "cuda"):
            self.assertEqual([library for library in needed if name in library], [])

    def test_containers_check_their_indices(self):
        self.assertIn("__glibcxx_assert_fail", readelf("--dyn-syms"))

    @unittest.skipUnless(platform.machine() in ("x86_64", "AMD64"), "CET is x86's")
    def test_control_flow(self):
        """Every function that a pointer can reach begins with ENDBR64. The program's CET mark is not asked for: the linker drops it
        where the system's start-up files have none, as on Debian 12."""
        self.assertGreater(pathlib.Path(PROGRAM).read_bytes().count(b"\xf3\x0f\x1e\xfa"), 1000)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop()
    unittest.main()
