"""Tests here talk to the scripted provider of the gateway's tests."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "metering"))
