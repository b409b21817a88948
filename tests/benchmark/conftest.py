"""Tests here make runs by hand, as those of `submissions` do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "submissions"))
