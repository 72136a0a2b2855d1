"""Files of the plugin are read without JAX."""

from __future__ import annotations

import subprocess
import sys


def test_csv_files_are_read_without_jax() -> None:
    """`ptjb-plot` and `load_bench_data` need none of it."""
    program = "import sys, pytest_jax_bench.data, pytest_jax_bench.csv.files; print('jax' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
