"""What an agent in the sandbox can't reach; each attempt is made for real, and can succeed.

Every probe prints `reached` if it gets at what it should not. `test_probes_can_reach` runs some of
them without a sandbox, where they do.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from agent_runs import GOOD, judge_told, shell
from fakes.scripted_upstream import KEY, Reply, serving

import kernelmark.operators
from kernelmark.evaluators.sandbox import bubblewrap
from kernelmark.evaluators.sandbox.installation import find_installation
from kernelmark.evaluators.sandbox.launch import __file__ as launch_file

pytestmark = pytest.mark.skipif(bool(bubblewrap.missing()), reason=bubblewrap.missing())

ROOT = Path(kernelmark.operators.__file__).parents[1]
#: shell conditions, true where something is reached that should not be
PROBES = {
    "the project's source": f"test -e {ROOT}/operators/aten",
    "a file of the project": "find / -name _interpreter_numerics.py 2>/dev/null | grep -q .",
    "the project as a package": "{ python} -c 'import kernelmark.operators'".replace(" ", "", 1),
    "anything that names an oracle": "grep -rlq 'def oracle' / --include=*.py -s",
    "the run folder": "test -e {run}/run || find / -name run.json 2>/dev/null | grep -q .",
    "home folders": "ls -A /root 2>/dev/null | grep -q . || test $(ls /home) != agent",
    "accounts": "test -e /etc/shadow || grep -q root /etc/passwd",
    "private keys": "ls /etc/ssl/private /etc/ssh 2>/dev/null | grep -q .",
    "keys in the environment": "env | grep -q 'SECRET\\|the-real-key\\|PYTEST'",
    "keys of other processes": "cat /proc/*/environ | grep -aq 'SECRET\\|the-real-key'",
    "other processes": "test $(cat /proc/*/comm | grep -c python) -gt 1",
    "our memory": "ls /proc/*/mem | wc -l | xargs test 12 -lt",
    "interfaces": "ls /sys/class/net 2>/dev/null | grep -q . || grep -q eth /proc/net/dev",
    "this machine's loopback": "curl -sS -m 3 http://127.0.0.1:{port}/",
    "abstract sockets": "grep -q @kernelmark-probe /proc/net/unix",
    "the network": "curl -sS -m 3 http://192.0.2.1/ || getent hosts example.org",
    "devices": "ls /dev | grep -q 'nvidia\\|kvm\\|sda\\|vda\\|kmsg\\|mem$'",
    "writing outside": "touch /x || touch /usr/x || touch /etc/x || touch /kernelmark/x",
    "changing verify": "echo >> /kernelmark/bin/verify || rm /kernelmark/judge.sock",
    "settings of the kernel": "for f in kernel/core_pattern kernel/panic vm/swappiness; do "
    "echo $(cat /proc/sys/$f) > /proc/sys/$f && break; done",
    "mounting": "mount -t tmpfs none /usr || umount /proc",
    "a namespace of its own": "unshare -Ur true",
    "privileges": "grep -q 'NoNewPrivs:.0' /proc/self/status || grep -q 'CapEff:.*[1-9a-f]' "
    "/proc/self/status",
    "becoming root": "su -c true || test $(id -u) = 0",
    "a terminal": "test -e /dev/console || echo > /dev/tty",
}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> socket.socket:
    """A secret in our environment, and a listener that the agent must not reach."""
    monkeypatch.setenv("SECRET_KEY", "SECRET-1234567890")
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen()
    return listener


def probe(what: str, root: Path, listener: socket.socket) -> str:
    condition = PROBES[what]
    python = sys.executable if "{python}" in condition else ""
    condition = condition.replace("{python}", python).replace("{run}", str(root))
    condition = condition.replace("{port}", str(listener.getsockname()[1]))
    return f"cd /\nif {condition}; then echo reached; fi; echo probed"


@pytest.mark.parametrize("what", PROBES)
def test_out_of_reach(tmp_path: Path, watched: socket.socket, what: str) -> None:
    with serving() as upstream:
        options = {"provider": "openai", "wall_s": "100"}
        run = shell(tmp_path, probe(what, tmp_path, watched), options, upstream=upstream)
    lines = run.printed.splitlines()
    assert "reached" not in lines, run.printed
    assert "probed" in lines, run.printed


@pytest.mark.parametrize(
    "what",
    [
        "the project's source",
        "the project as a package",
        "keys in the environment",
        "this machine's loopback",
        "other processes",
        "becoming root",
    ],
)
def test_probes_can_reach(tmp_path: Path, watched: socket.socket, what: str) -> None:
    if what == "becoming root" and os.geteuid() != 0:
        pytest.skip("not root")
    if what == "this machine's loopback":
        with serving() as upstream:
            port = str(upstream.port)
            words = ["curl", "-sS", "-m", "3", f"http://127.0.0.1:{port}/"]
            assert subprocess.run(words, capture_output=True).returncode == 0
        return
    script = probe(what, tmp_path, watched)
    said = subprocess.run(["sh", "-c", script], capture_output=True, text=True).stdout
    assert "reached" in said.splitlines()


def test_a_copy_of_the_project_in_a_visible_folder_is_covered(tmp_path: Path) -> None:
    site = tmp_path / "venv/lib/python3.11/site-packages"
    (site / "kernelmark/operators").mkdir(parents=True)
    (site / "kernelmark/operators/oracle.py").write_text("answer = 42\n")
    (site / "other.py").write_text("other = 1\n")
    script = f"find {tmp_path}/venv -name '*.py'; touch {site}/kernelmark/x || echo sealed"
    run = shell(tmp_path, script, {"expose": str(tmp_path / "venv")})
    assert "other.py" in run.printed
    assert "oracle.py" not in run.printed
    assert "sealed" in run.printed


def test_the_run_folder_is_not_exposed(tmp_path: Path) -> None:
    run = shell(tmp_path, "ls", {"expose": str(tmp_path)})
    assert run.attempt.failure == "method_error"
    assert "would show" in run.attempt.note


def test_the_gateway_is_all_that_is_reached(tmp_path: Path) -> None:
    """With its token it reaches its own attempt; not another's, nor the provider's key."""
    script = """
call() { curl -sS -m 20 -o out -w '%{http_code} ' "$@"; head -c 80 out; echo; }
body='{"model": "m", "messages": []}'
call -H "Authorization: Bearer $OPENAI_API_KEY" -d "$body" $OPENAI_BASE_URL/chat/completions
call -H "Authorization: Bearer wrong" -d "$body" $OPENAI_BASE_URL/chat/completions
other=$(echo $KERNELMARK_URL | sed 's/cublas.cublasSaxpy_v2/aten.softmax/')/v1/chat/completions
call -H "Authorization: Bearer $OPENAI_API_KEY" -d "$body" $other
next=$(echo $KERNELMARK_URL | sed 's/.$/2/')/v1/chat/completions
call -H "Authorization: Bearer $OPENAI_API_KEY" -d "$body" $next
call http://127.0.0.1:18080/
for port in 1 22 80 443 8080 5432; do curl -s -m 1 http://127.0.0.1:$port/ && echo open $port; done
"""
    with serving(lambda asked: Reply(text="hello")) as upstream:
        run = shell(tmp_path, script, {"provider": "openai"}, upstream=upstream)
    codes = [line.split()[0] for line in run.printed.splitlines() if line[:3].isdigit()]
    assert codes == ["200", "401", "401", "401", "401"], run.printed
    assert "open" not in run.printed
    assert KEY not in run.printed
    assert len(upstream.bills) == 1


MESSAGES = {
    "nothing": b"",
    "no JSON": b"hello",
    "half of JSON": b'{"source": "x',
    "no object": b"[1, 2]",
    "no source": b"{}",
    "more than a source": b'{"source": "x", "seed": 1}',
    "settings": b'{"source": "x", "cases": ["hidden"]}',
    "no text": b'{"source": 5}',
    "deep": b"[" * 100_000,
    "half a character": b'{"source": "\\ud800"}',
    "null bytes": b"\x00" * 1000,
    "too long a source": b'{"source": "' + b"x" * (1 << 20) + b'y"}',
    "huge": b"x" * (20 << 20),
}


def test_the_judge_answers_malformed_messages_with_one_line(tmp_path: Path) -> None:
    """All from within the sandbox; afterwards it still answers what is right."""
    sent = {name: message.hex() for name, message in MESSAGES.items() if len(message) < 1000}
    big = ["deep", "null bytes", "too long a source", "huge"]
    code = f"""
import json, os, socket
def ask(data):
    s = socket.socket(socket.AF_UNIX)
    s.connect(os.environ["KERNELMARK_JUDGE"])
    try:
        s.sendall(data)
        s.shutdown(socket.SHUT_WR)
        with s.makefile("rb") as f:
            return f.read()
    except OSError as error:
        return json.dumps({{"error": type(error).__name__}}).encode()
messages = {{name: bytes.fromhex(data) for name, data in {sent!r}.items()}}
messages["deep"] = b"[" * 100_000
messages["null bytes"] = bytes(1000)
messages["too long a source"] = b'{{"source": "' + b"x" * (1 << 20) + b'y"}}'
messages["huge"] = b"x" * (20 << 20)
for name, data in messages.items():
    print(json.dumps([name, json.loads(ask(data))]))
s = socket.socket(socket.AF_UNIX); s.connect(os.environ["KERNELMARK_JUDGE"]); s.sendall(b'{{"so')
print("silent for a while")
held = [socket.socket(socket.AF_UNIX) for _ in range(5)]
for h in held: h.connect(os.environ["KERNELMARK_JUDGE"])
for h in held: h.close()
s.close()
"""
    (tmp_path / "attack.py").write_text(code)
    script = f"/usr/bin/python3 {tmp_path}/attack.py; cp example.py candidate.py; verify"
    options = {"expose": str(tmp_path / "attack.py")}
    run = shell(tmp_path, script, options)
    answers = dict(json.loads(line) for line in run.printed.splitlines() if line.startswith('["'))
    assert set(answers) == {*sent, *big} | set(MESSAGES)
    assert all(set(answer) == {"error"} for answer in answers.values()), answers
    assert "49 checks left" in run.printed  # none of them was a check


def test_a_slow_message_does_not_hold_the_judge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernelmark.evaluators.sandbox.judge_socket.READ_S", 1.0)
    code = """
import os, socket, subprocess
s = socket.socket(socket.AF_UNIX)
s.connect(os.environ["KERNELMARK_JUDGE"])
s.sendall(b'{"source":')
subprocess.run(["verify", "example.py"])
print(s.recv(1000))
"""
    (tmp_path / "slow.py").write_text(code)
    script = f"/usr/bin/python3 {tmp_path}/slow.py"
    run = shell(tmp_path, script, {"expose": str(tmp_path / "slow.py")})
    assert "49 checks left" in run.printed
    assert "did not end within 1 s" in run.printed


def test_feedback_tells_no_expected_value_and_no_hidden_call(tmp_path: Path) -> None:
    wrong = GOOD.replace("alpha * x + y", "alpha * x + y + 1")
    assert wrong != GOOD
    (tmp_path / "wrong.py").write_text(wrong)
    script = f"cp {tmp_path}/wrong.py candidate.py; verify; verify --json"
    run = shell(
        tmp_path,
        script,
        {"expose": str(tmp_path / "wrong.py")},
        check=judge_told,
    )
    text, answer = run.printed.splitlines()[:-1], json.loads(run.printed.splitlines()[-1])
    assert text[0] == "wrong_values (gate correctness)"
    assert "in the call n=" in text[1]
    assert "elements wrong, error" in text[2]
    assert set(answer) == {"status", "text", "checks_left"}
    assert "expected" not in run.printed
    assert " is " not in text[2]


def test_programs_of_the_sandbox_need_nothing_but_python() -> None:
    for name in ("launch.py", "verify.py"):
        path = Path(launch_file).with_name(name)
        words = ["/usr/bin/python3", "-I", "-S", str(path), "--help"]
        done = subprocess.run(words, capture_output=True, text=True, env={})
        assert "ModuleNotFoundError" not in done.stderr
        assert "ImportError" not in done.stderr


def test_installations_are_followed(tmp_path: Path) -> None:
    modules = tmp_path / "lib/node_modules/agent/bin"
    modules.mkdir(parents=True)
    (modules / "agent.js").write_text("#!/usr/bin/env sh\n")
    (modules / "agent.js").chmod(0o755)
    (tmp_path / "agent").symlink_to(modules / "agent.js")
    found = find_installation(str(tmp_path / "agent"))
    assert found is not None
    assert found.program == str(modules / "agent.js")
    assert found.visible == (str(tmp_path / "lib/node_modules"),)
    assert find_installation("no-such-program-anywhere") is None
    assert find_installation(str(tmp_path)) is None
