"""`python -m builder` is the command `builder`."""

from builder.cli.main import main

if __name__ == "__main__":
    main()
