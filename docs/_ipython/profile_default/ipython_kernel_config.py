"""Read by every kernel that executes a page."""

# Each kernel warns that it speaks to its client without encryption; both are on this machine.
get_config().IPKernelApp.log_level = "ERROR"  # noqa: F821  # what IPython gives such files
