"""A gateway as a process of its own, to be killed.

``python gateway_process.py LEDGER UPSTREAM_ROOT KEY`` prints its root URL and token, and serves.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from kernelmark.evaluators.metering.gateway import Upstream, open_gateway

OPERATOR = "aten::softmax"


def main(ledger: str, root: str, key: str) -> None:
    """Serves until it is killed."""
    upstreams = {
        "openai": Upstream(f"{root}/v1", key),
        "anthropic": Upstream(root, key),
        "gemini": Upstream(root, key),
    }
    with open_gateway("run1", upstreams, Path(ledger)) as gateway:
        grant = gateway.grant(OPERATOR, 1)
        print(grant.root_url, grant.token, flush=True)
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
