"""The environment of programs that must not give up on their store because the machine is busy."""

from pathlib import Path

PATIENT = {"PYTHONPATH": str(Path(__file__).with_name("long_deadline"))}
