"""How Sphinx builds the documentation: `make docs`. Pages with a kernel in their head are executed."""

import os
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
# Cells call the commands by name, as readers do.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
# The pages are read on CPU; JAX would look for accelerators, and warn where it finds none.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ["COLUMNS"] = "100"
# What is printed is text: Jupyter's kernel asks every program that a cell starts for colours.
os.environ["IPYTHONDIR"] = str(HERE / "_ipython")

project = "benchax"
author = "the benchax developers"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]

extensions = ["myst_nb", "sphinx_copybutton", "reference_directives"]
exclude_patterns = ["_build"]
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: most belong to JAX and NumPy

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
# Always: benchax itself may have changed. While writing text: -D nb_execution_mode=cache
nb_execution_mode = "force"
nb_execution_cache_path = str(HERE / "_build" / "executed")
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 180
nb_merge_streams = True
nb_output_stderr = "remove"  # commands say there what they are doing
nb_ipywidgets_js = {}  # they would be fetched from elsewhere

smartquotes = False  # "--store" is no dash
python_maximum_signature_line_length = 100
add_module_names = False

html_theme = "furo"
html_title = "benchax"
html_static_path = ["_static"]
html_css_files = ["benchax.css"]
html_copy_source = False
html_show_copyright = False
copybutton_prompt_text = r"\$ |>>> |\.\.\. "
copybutton_prompt_is_regexp = True
