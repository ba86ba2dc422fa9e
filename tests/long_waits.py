"""The environment of programs that a busy machine must not make fail: they wait at least a minute for their store."""

from pathlib import Path

LONG_DEADLINE = {"PYTHONPATH": str(Path(__file__).with_name("long_deadline"))}
