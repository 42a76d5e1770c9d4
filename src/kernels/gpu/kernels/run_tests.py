"""CTest's entry: run_tests.py PYTHON NAME... runs the test modules of this folder in Triton's interpreter. Exits with 77,
which CTest counts as skipped, where PYTHON has no Triton."""

import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent
python, *names = sys.argv[1:]
found = pathlib.Path(python).exists() and subprocess.run([python, "-c", "import triton, numpy"], capture_output=True).returncode == 0
if not found:
    print(f"skipped: {python} has no Triton; tools/setup_gpu.sh installs it")
    sys.exit(77)
# One thread of NumPy: its sums then do not depend on the machine's number of cores.
environment = os.environ | {"TRITON_INTERPRET": "1", "TRITON_DEFAULT_FP_FUSION": "0", "OPENBLAS_NUM_THREADS": "1"}
sys.exit(max(subprocess.run([python, "-W", "ignore", HERE / f"{name}.py"], env=environment).returncode for name in names))
