"""Push and load by the real clients, against a loopback Hub that also fails."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("datasets")
from fakes.hub import Hub
from huggingface_hub import HfApi

from kernelmark.benchmark.dataset.build import MANIFEST
from kernelmark.benchmark.dataset.load import load, read_folder
from kernelmark.benchmark.dataset.push import Push, Pushed
from kernelmark.benchmark.dataset.schema import CONFIGURATIONS
from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.operators.registry import all_operators

REPO = "lab/kernelmark"


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        hub.add_user("alice", "lab")
        hub.add_user("bob")
        yield hub


class Pusher:
    """Pushes and remembers what was said and how long it would have waited."""

    def __init__(self, hub: Hub, user: str = "alice", cache: Path | None = None) -> None:
        self.api = HfApi(endpoint=hub.url, token=f"hf_loopback_{user}")
        self.said: list[str] = []
        self.waits: list[float] = []

    def __call__(self, folder: Path, pull_request: bool = False) -> Pushed:
        said, waits = self.said.append, self.waits.append
        return Push(self.api, REPO, folder, said, pull_request, pause=waits).run()


@pytest.fixture
def push(hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Pusher:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "cache"))
    return Pusher(hub)


def published(hub: Hub, revision: str = "main") -> dict[str, bytes]:
    files = hub.files(REPO, revision)
    files.pop(".gitattributes")
    return files


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def run(
    hub: Hub, home: Path, *command: str, user: str = "alice", **more: str
) -> subprocess.CompletedProcess[str]:
    """A process of its own, as the clients read HF_ENDPOINT when they are imported."""
    environment = {
        **os.environ,
        **hub.environment(f"hf_loopback_{user}", home / "hf"),
        "KERNELMARK_HOME": str(home),
        **more,
    }
    return subprocess.run(
        [sys.executable, *command], env=environment, capture_output=True, text=True, timeout=240
    )


KERNELMARK = ("-m", "kernelmark.benchmark.cli", "dataset")


@pytest.mark.slow
def test_the_commands_round_trip_to_the_same_hash(hub: Hub, built: Path, tmp_path: Path) -> None:
    pushed = run(hub, tmp_path, *KERNELMARK, "push", "--json", REPO, str(built))
    assert pushed.returncode == 0, pushed.stderr
    hash = json.loads((built / MANIFEST).read_text())["content_hash"]
    assert json.loads(pushed.stdout)["content_hash"] == hash
    assert published(hub) == bytes_of(built)
    assert [commit.title for commit in hub.repo(REPO).history(hub.repo(REPO).head)][1:] == [
        "initial commit"
    ]  # one commit
    loaded = run(hub, tmp_path, *KERNELMARK, "load", "--json", REPO, "--revision", "v0.1.0")
    assert loaded.returncode == 0, loaded.stderr
    about = json.loads(loaded.stdout)
    assert about["content_hash"] == hash
    assert about["source"] == f"{REPO}@{hub.repo(REPO).head.oid}"
    assert str(tmp_path) in about["folder"]
    assert about["rows"]["operators"] == len(all_operators())
    printed = run(hub, tmp_path, *KERNELMARK, "load", REPO, "--rows", "cases")
    rows = list(map(json.loads, printed.stdout.splitlines()))
    assert rows == read_folder(built).tables["cases"]


ROWS = """
import json, sys
import datasets
for name in {names}:
    table = datasets.load_dataset({source!r}, name, split="test")
    for row in table:
        print(json.dumps([name, row], sort_keys=True))
"""


def test_datasets_gives_the_same_rows_from_the_folder_offline(
    hub: Hub, built: Path, tmp_path: Path
) -> None:
    names = [configuration.name for configuration in CONFIGURATIONS]
    code = ROWS.format(names=names, source=str(built))
    offline = {
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "HF_ENDPOINT": "http://127.0.0.1:9",
    }
    done = run(hub, tmp_path, "-c", code, **offline)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    ours = read_folder(built)
    wanted = [
        json.dumps([name, row], sort_keys=True) for name in names for row in ours.tables[name]
    ]
    assert lines == wanted
    assert len(ours.tables["operators"]) == len(all_operators())
    code = f"import datasets; print(len(datasets.load_dataset({str(built)!r})['test']))"
    assert run(hub, tmp_path, "-c", code, **offline).stdout.strip() == str(len(all_operators()))


def test_datasets_and_load_give_the_same_rows_from_the_hub(
    hub: Hub, push: Pusher, small: Path, tmp_path: Path
) -> None:
    push(small)
    names = [configuration.name for configuration in CONFIGURATIONS]
    theirs = run(hub, tmp_path, "-c", ROWS.format(names=names, source=REPO))
    assert theirs.returncode == 0, theirs.stderr
    tables = load(REPO, "", tmp_path, push.api).tables
    ours = [json.dumps([name, row], sort_keys=True) for name in names for row in tables[name]]
    assert theirs.stdout.splitlines() == ours


@pytest.mark.slow
def test_a_run_takes_its_cases_from_a_revision(
    hub: Hub, push: Pusher, small: Path, tmp_path: Path
) -> None:
    commit = push(small).commit
    hub.commit(REPO, {"data/cases/test-00000-of-00001.parquet": b"newer, and broken"})
    words = ["run", "--method", "reference", "--suite", "cublas::cublasSaxpy_v2"]
    words += ["--chip", "interpreter", "--cases-from", f"{REPO}@v0.1.0"]
    root = tmp_path / "run"
    done = run(hub, tmp_path, *KERNELMARK[:-1], *words, "--out", str(root))
    assert done.returncode == 0, done.stderr
    hash = json.loads((small / MANIFEST).read_text())["content_hash"]
    recorded = json.loads((root / "run.json").read_text())
    assert (recorded["cases_from"], recorded["dataset"]) == (f"{REPO}@{commit}", hash)
    (path,) = (root / "verdicts").glob("*.json")
    verdict = json.loads(path.read_text())
    assert (verdict["status"], verdict["dataset"]) == ("passed", hash)


def test_a_second_push_changes_nothing(hub: Hub, push: Pusher, small: Path) -> None:
    first, second = push(small), push(small)
    assert (first.changed, second.changed) == (True, False)
    assert first.commit == second.commit == hub.repo(REPO).tags["v0.1.0"]


def test_files_of_an_earlier_release_go_and_others_stay(hub: Hub, push: Pusher, copy: Path) -> None:
    (copy / "old.txt").write_text("1")
    manifest = json.loads((copy / MANIFEST).read_text())
    changed = {**manifest, "version": "0.0.9", "files": {**manifest["files"], "old.txt": {}}}
    (copy / MANIFEST).write_text(json.dumps(changed))
    push(copy)
    hub.commit(REPO, {"LICENSE": b"by hand"})
    (copy / "old.txt").unlink()
    (copy / MANIFEST).write_text(json.dumps(manifest))
    push(copy)
    assert published(hub) == {**bytes_of(copy), "LICENSE": b"by hand"}
    assert set(hub.repo(REPO).tags) == {"v0.0.9", "v0.1.0"}


def test_a_version_names_its_contents_for_good(
    hub: Hub, push: Pusher, small: Path, copy: Path
) -> None:
    push(small)
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps({**manifest, "content_hash": "0" * 64}))
    with pytest.raises(UserError, match=r"version 0\.1\.0 with other contents"):
        push(copy)
    assert published(hub) == bytes_of(small)


@pytest.mark.parametrize("status", [409, 412, 429, 500, 503])
def test_what_passes_by_itself_is_tried_again(
    hub: Hub, push: Pusher, small: Path, status: int
) -> None:
    hub.fail("/commit/", status, times=3)
    push(small)
    assert published(hub) == bytes_of(small)
    tried = [asked.status for asked in hub.requests if "/commit/" in asked.path]
    assert tried == [status, status, status, 200]
    assert len(push.waits) == 3
    assert push.waits[0] < push.waits[2]
    assert all(f"answers {status}" in line for line in push.said if "again in" in line)


def test_the_hub_says_how_long_to_wait(hub: Hub, push: Pusher, small: Path) -> None:
    hub.fail("/commit/", 429, headers={"Retry-After": "7"})
    push(small)
    assert push.waits == [7.0]


def test_somebody_else_was_faster(hub: Hub, push: Pusher, small: Path) -> None:
    push(small)
    files = {MANIFEST: None, "theirs.txt": b"1"}
    hub.commit(REPO, files)
    hub.beforehand("/commit/", lambda: hub.commit(REPO, {"README.md": b"theirs"}))
    push(small)
    assert published(hub) == {**bytes_of(small), "theirs.txt": b"1"}
    assert [a.status for a in hub.requests if "/commit/" in a.path] == [200, 412, 200]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_cut_connection_is_no_second_commit(
    hub: Hub, push: Pusher, small: Path, when: str
) -> None:
    hub.cut("/commit/", when)  # type: ignore[arg-type]
    push(small)
    assert published(hub) == bytes_of(small)
    assert len(list(hub.repo(REPO).history(hub.repo(REPO).head))) == 2
    assert any("the connection broke" in line for line in push.said)


def test_it_gives_up(hub: Hub, push: Pusher, small: Path) -> None:
    hub.fail("/commit/", 503, times=99)
    with pytest.raises(InfrastructureError, match=r"failed 8 times.*503"):
        push(small)
    assert len(push.waits) == 7


def test_a_stranger_may_only_propose(hub: Hub, push: Pusher, small: Path) -> None:
    stranger = Pusher(hub, "bob")
    with pytest.raises(UserError, match="403"):
        stranger(small)
    push.api.create_repo(REPO, repo_type="dataset")
    with pytest.raises(UserError, match=r"refused with 403.*--pull-request"):
        stranger(small)
    proposed = stranger(small, pull_request=True)
    assert proposed.pull_request.endswith(f"/datasets/{REPO}/discussions/1")
    assert MANIFEST not in hub.files(REPO)
    assert published(hub, "refs/pr/1") == bytes_of(small)
    hub.merge(REPO, 1)
    assert published(hub) == bytes_of(small)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_lost_answer_is_no_second_pull_request(
    hub: Hub, push: Pusher, small: Path, when: str
) -> None:
    push.api.create_repo(REPO, repo_type="dataset")
    hub.cut("/commit/", when)  # type: ignore[arg-type]
    proposed = push(small, pull_request=True)
    assert proposed.pull_request.endswith("/discussions/1")
    assert len(hub.repo(REPO).discussions) == 1


def test_the_token_comes_from_the_environment_alone(hub: Hub, small: Path, tmp_path: Path) -> None:
    done = run(hub, tmp_path, *KERNELMARK, "push", REPO, str(small), HF_TOKEN="")
    assert done.returncode == 2
    assert "HF_TOKEN is not set" in done.stderr
    assert hub.requests == []


def test_what_is_not_sound_is_not_pushed(hub: Hub, copy: Path, tmp_path: Path) -> None:
    (copy / "stray.txt").write_text("1")
    done = run(hub, tmp_path, *KERNELMARK, "push", REPO, str(copy))
    assert done.returncode == 2
    assert "1 defects; the first: stray.txt: is not listed" in done.stderr
    assert hub.requests == []


@pytest.mark.parametrize(
    ("source", "revision", "what"),
    [
        (REPO, "v9", "has no revision v9"),
        (f"{REPO}@v9", "", "has no revision v9"),
        (f"{REPO}@main", "v9", "neither a folder nor REPO@REVISION"),
        ("lab/nothing", "", "no data set lab/nothing"),
        ("not a repo", "", "neither a folder nor REPO@REVISION"),
        ("./nothing", "", "neither a folder nor a repository's name"),
        ("tests", "", r"no data set \(kernelmark.json is missing\)"),
        ("tests", "v1", "has no revision v1"),
    ],
)
def test_mistakes_of_load(
    push: Pusher, small: Path, tmp_path: Path, source: str, revision: str, what: str
) -> None:
    push(small)
    with pytest.raises(UserError, match=what):
        load(source, revision, tmp_path, push.api)


def test_a_broken_file_on_the_hub(hub: Hub, push: Pusher, small: Path, tmp_path: Path) -> None:
    push(small)
    hub.commit(REPO, {"data/cases/test-00000-of-00001.parquet": b"no"})
    with pytest.raises(UserError, match="cannot be read"):
        load(REPO, "", tmp_path, push.api)
    assert load(REPO, "v0.1.0", tmp_path, push.api).content_hash


def test_an_unreachable_hub(small: Path, tmp_path: Path) -> None:
    with Hub() as hub:
        api = HfApi(endpoint=hub.url)
    with pytest.raises(InfrastructureError, match=f"{REPO}@main cannot be fetched"):
        load(REPO, "", tmp_path, api)


def test_a_mistake_is_one_line(hub: Hub, tmp_path: Path) -> None:
    done = run(hub, tmp_path, *KERNELMARK, "load", str(tmp_path), "--revision", "v1")
    assert done.returncode == 2
    assert done.stderr == f"kernelmark: {tmp_path} is a folder: it has no revision v1\n"


def test_rows_that_are_not_those_of_the_hash_are_refused(copy: Path) -> None:
    manifest = json.loads((copy / MANIFEST).read_text())
    (copy / MANIFEST).write_text(json.dumps({**manifest, "content_hash": "0" * 64}))
    with pytest.raises(UserError, match="not those that its manifest names"):
        load(str(copy))
