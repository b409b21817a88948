"""For all tests: the Hub's clients use plain LFS, as `fakes.hub` has no Xet storage."""

import os

os.environ["HF_HUB_DISABLE_XET"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
