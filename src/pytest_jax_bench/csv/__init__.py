"""The CSV file of a test: written, numbered, read and named; `files.py` is the way in."""
