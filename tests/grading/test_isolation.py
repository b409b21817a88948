"""What a candidate can reach, with bubblewrap and without; each attempt is made for real."""

from __future__ import annotations

import shutil

import pytest
from judging import body, judged

from kernelmark.evaluators.grading import isolation
from kernelmark.evaluators.grading.workers import close_servers
from kernelmark.evaluators.languages.triton import TritonLanguage

#: each says "reached" if the candidate gets at what it should not
ATTEMPTS = {
    "user": "os.getuid() == 0",
    "home": "os.path.exists(os.path.expanduser('~root') + '/.bashrc') or os.path.exists('/home')",
    "repository": f"os.path.exists({__file__!r})",
    "operators": f"bool(os.listdir({isolation.__file__.split('evaluators')[0] + 'operators'!r}))",
    "other processes": "len([p for p in os.listdir('/proc') if p.isdigit()]) > 1",
    "descriptors": "sorted(map(int, os.listdir('/proc/self/fd')))[3:] and "
    "len(os.listdir('/proc/self/fd')) > 6",
    "environment": "'SECRET_KEY' in os.environ or 'PYTEST_CURRENT_TEST' in os.environ",
    "capabilities": "'CapEff:\\t0000000000000000' not in open('/proc/self/status').read()",
    "privileges": "'NoNewPrivs:\\t1' not in open('/proc/self/status').read()",
    "network": "bool([n for _, n in socket.if_nameindex() if n != 'lo'])",
    "signals": "can(lambda: os.kill(os.getppid() or 1 << 22, 9))",
    "writing": "any(can(lambda: open(f + '/x', 'w')) for f in ('/', '/usr', '/etc', '/tmp'))",
    "mounting": "ctypes.CDLL(None).mount(b'none', b'/scratch', b'tmpfs', 0, None) == 0",
    "tracing": "ctypes.CDLL(None).ptrace(16, 1, 0, 0) == 0",
}

PROBE = """
def can(f):
    try:
        f()
        return True
    except OSError:
        return False
if {attempt}:
    raise RuntimeError("reached")
"""


@pytest.fixture(params=["bubblewrap", "bare"], scope="module")
def way(request):
    """The judge with bubblewrap, and as it is where there is none."""
    close_servers()
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "bare":
            patch.setattr(isolation, "bubblewrap", lambda paths, cache="": [])
        elif shutil.which("bwrap") is None:
            pytest.skip("bubblewrap is not installed")
        patch.setenv("SECRET_KEY", "x")
        patch.setattr(TritonLanguage, "scan", lambda *args: [])
        yield request.param
        close_servers()


def test_it_is_told_what_is_in_force(way):
    verdict = judged(body("pass"))
    assert verdict.status == "passed", verdict.message
    said = verdict.environment["isolation"]
    assert ("bubblewrap" in said) == (way == "bubblewrap")
    if isolation.os.geteuid() == 0:
        assert "not available" not in said
        assert "user nobody" in said


@pytest.mark.parametrize("what", ATTEMPTS)
def test_out_of_reach(way, what):
    verdict = judged(body(PROBE.format(attempt=ATTEMPTS[what])))
    assert verdict.status == "passed", f"{what}: {verdict.message}"


def test_a_probe_can_fail(way):
    verdict = judged(body(PROBE.format(attempt="os.getpid() > 0")))
    assert (verdict.status, "reached" in verdict.message) == ("runtime_error", True)


def test_scratch_is_private_and_new(way):
    source = body("""
path = os.path.expanduser("~") + "/left-behind"
if os.path.exists(path) and not kept:
    raise RuntimeError("reached")
open(path, "w").write("x")
kept[0] = 1
""")
    assert judged(source).status == "passed"
    assert judged(source).status == "passed"
