"""`python -m benchax` is the command `benchax`."""

from benchax.cli.main import main

if __name__ == "__main__":
    main()
