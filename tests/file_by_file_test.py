"""file_by_file_test.py CMAKE ROOT [PATTERN]: every file compiles alone and shadows no name.

`make` compiles several files as one, where one file's includes serve the next and -Wshadow is off. This asks the compiler to
check each file by itself, without making code, which takes about 3 s of a core for each: all, or those whose paths contain
PATTERN.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys
import tempfile


def check(entry):
    """What the compiler says of one file, or nothing."""
    words = shlex.split(entry["command"])
    output = words.index("-o")
    del words[output:output + 2]
    if words[0].endswith("ccache"):
        del words[0]
    words[words.index("-c")] = "-fsyntax-only"
    done = subprocess.run([*words, "-Werror=shadow"], cwd=entry["directory"], capture_output=True, text=True)
    return done.stderr.strip() if done.returncode else ""


def main(cmake, root, pattern=""):
    with tempfile.TemporaryDirectory(prefix="coppice-files-") as folder:
        subprocess.run([cmake, "--log-level=WARNING", "-S", root, "-B", folder, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DCMAKE_UNITY_BUILD=OFF", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", "-DCOPPICE_GPU_KERNELS=OFF"],
                       check=True, stdout=subprocess.DEVNULL)
        entries = [entry for entry in json.loads((pathlib.Path(folder) / "compile_commands.json").read_text())
                   if pattern in os.path.relpath(entry["file"], root)]
        if not entries:
            print(f"no file has {pattern!r} in its path")
            return 1
        wrong = 0
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            for entry, said in zip(entries, pool.map(check, entries)):
                if said:
                    wrong += 1
                    print(f"{os.path.relpath(entry['file'], root)}:\n{said}\n")
        print(f"{len(entries) - wrong} of {len(entries)} files compile alone")
        return wrong > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
