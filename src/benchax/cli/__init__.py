"""The command line: a thin layer over functions of the same names. Data to stdout, everything else to stderr."""
