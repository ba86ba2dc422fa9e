"""Runs the command line: ``python -m zae_limiter``."""

from zae_limiter.cli import main

if __name__ == "__main__":
    main(prog_name="zae-limiter")
