"""Run by every kernel that executes a page: programs that cells start print plain text, and print it whole."""

import os
import subprocess
import sys

from IPython.core.magic import register_cell_magic

for name in ("FORCE_COLOR", "CLICOLOR_FORCE", "CLICOLOR"):
    os.environ.pop(name, None)


@register_cell_magic
def sh(_: str, cell: str) -> None:
    """Does what `%%sh` does. That one passes text on in pieces, and pages would break lines between them."""
    done = subprocess.run(["sh", "-c", cell], capture_output=True, encoding="utf-8")
    sys.stderr.write(done.stderr)
    sys.stdout.write(done.stdout)
    done.check_returncode()
