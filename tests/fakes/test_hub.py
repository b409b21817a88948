"""The loopback Hub itself, by the real client: if it is wrong, tests over it prove nothing."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import (
    EntryNotFoundError,
    HfHubHTTPError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from fakes.hub import Hub

REPO = "lab/things"
PARQUET = bytes(range(256)) * 40


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub(page_size=3) as hub:
        yield hub


@pytest.fixture
def owner(hub: Hub) -> HfApi:
    api = HfApi(endpoint=hub.url, token=hub.add_user("alice", "lab"))
    api.create_repo(REPO, repo_type="dataset")
    return api


@pytest.fixture
def stranger(hub: Hub) -> HfApi:
    return HfApi(endpoint=hub.url, token=hub.add_user("bob"))


def add(api: HfApi, path: str, data: bytes, **options: object) -> object:
    operations = [CommitOperationAdd(path, data)]
    return api.create_commit(
        REPO, operations, commit_message=f"add {path}", repo_type="dataset", **options
    )


def status_of(error: pytest.ExceptionInfo[HfHubHTTPError]) -> int:
    return error.value.response.status_code


def test_folder_round_trips_through_upload_and_snapshot(
    hub: Hub, owner: HfApi, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    (folder / "data").mkdir(parents=True)
    (folder / "README.md").write_text("---\nlicense: apache-2.0\n---\n# Things\n")
    (folder / "data/a.parquet").write_bytes(PARQUET)
    for i in range(4):
        (folder / f"data/{i}.txt").write_text(f"number {i}")
    owner.upload_folder(repo_id=REPO, repo_type="dataset", folder_path=folder)
    assert hub.repo(REPO).head.tree["data/a.parquet"].lfs
    copy = owner.snapshot_download(REPO, repo_type="dataset", local_dir=tmp_path / "copy")
    for path in (p for p in folder.rglob("*") if p.is_file()):
        assert (Path(copy) / path.relative_to(folder)).read_bytes() == path.read_bytes()
    info = owner.dataset_info(REPO, files_metadata=True)
    assert info.card_data is not None
    assert info.card_data.license == "apache-2.0"
    assert info.sha == hub.repo(REPO).head.oid


def test_deletions_and_unknown_names(owner: HfApi) -> None:
    add(owner, "a/b.txt", b"1")
    operations = [CommitOperationDelete("a/", is_folder=True)]
    owner.create_commit(REPO, operations, commit_message="remove", repo_type="dataset")
    assert not owner.file_exists(REPO, "a/b.txt", repo_type="dataset")
    with pytest.raises(RepositoryNotFoundError):
        owner.dataset_info("lab/nothing")
    with pytest.raises(RevisionNotFoundError):
        owner.dataset_info(REPO, revision="v9")
    with pytest.raises(EntryNotFoundError):
        owner.hf_hub_download(REPO, "nothing.txt", repo_type="dataset")


def test_a_pinned_parent_that_moved_is_412(hub: Hub, owner: HfApi) -> None:
    parent = owner.dataset_info(REPO).sha
    hub.beforehand("/commit/", lambda: hub.commit(REPO, {"theirs.txt": b"1"}))
    with pytest.raises(HfHubHTTPError) as error:
        add(owner, "ours.txt", b"2", parent_commit=parent)
    assert status_of(error) == 412
    assert "ours.txt" not in hub.files(REPO)


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_faults_on_demand(hub: Hub, owner: HfApi, status: int) -> None:
    hub.fail("/commit/", status, times=1)
    with pytest.raises(HfHubHTTPError) as error:
        add(owner, "a.txt", b"1")
    assert status_of(error) == status
    add(owner, "a.txt", b"1")
    assert [r.status for r in hub.requests if "/commit/" in r.path] == [status, 200]


@pytest.mark.parametrize(("when", "done"), [("before", False), ("after", True)])
def test_cut_connections(hub: Hub, owner: HfApi, when: str, done: bool) -> None:
    hub.cut("/commit/", when)  # type: ignore[arg-type]
    with pytest.raises(Exception, match=r"(?i)disconnected|reset|closed"):
        add(owner, "a.txt", b"1")
    assert ("a.txt" in hub.files(REPO)) is done


def test_a_download_cut_in_the_middle_is_resumed_by_the_client(
    hub: Hub, owner: HfApi, tmp_path: Path
) -> None:
    add(owner, "a.parquet", PARQUET * 100)
    hub.cut("/storage/", "half", method="GET")
    path = owner.hf_hub_download(REPO, "a.parquet", repo_type="dataset", local_dir=tmp_path)
    assert Path(path).read_bytes() == PARQUET * 100


def test_strangers_may_only_propose(hub: Hub, owner: HfApi, stranger: HfApi) -> None:
    with pytest.raises(HfHubHTTPError) as error:
        add(stranger, "a.txt", b"1")
    assert status_of(error) == 403
    proposed = add(stranger, "a.txt", b"1", create_pr=True)
    add(stranger, "b.txt", b"2", revision=proposed.pr_revision)  # type: ignore[attr-defined]
    assert proposed.pr_num == 1  # type: ignore[attr-defined]
    assert "a.txt" not in hub.files(REPO)
    assert set(hub.files(REPO, "refs/pr/1")) >= {"a.txt", "b.txt"}
    pulls = list(owner.get_repo_discussions(REPO, repo_type="dataset"))
    assert [(p.num, p.author, p.is_pull_request, p.status) for p in pulls] == [
        (1, "bob", True, "open")
    ]
    with pytest.raises(HfHubHTTPError):
        stranger.merge_pull_request(REPO, 1, repo_type="dataset")
    owner.merge_pull_request(REPO, 1, repo_type="dataset", comment="thanks")
    assert hub.files(REPO)["a.txt"] == b"1"
    details = owner.get_discussion_details(REPO, 1, repo_type="dataset")
    assert details.status == "merged"
    assert details.merge_commit_oid == hub.repo(REPO).head.oid
    assert [event.type for event in details.events].count("commit") == 2


def test_merging_refuses_conflicts_and_keeps_what_came_between(hub: Hub, stranger: HfApi) -> None:
    owner = HfApi(endpoint=hub.url, token=hub.add_user("alice", "lab"))
    owner.create_repo(REPO, repo_type="dataset")
    add(stranger, "a.txt", b"theirs", create_pr=True)
    hub.commit(REPO, {"b.txt": b"between"})
    hub.merge(REPO, 1)
    assert {"a.txt", "b.txt"} <= set(hub.files(REPO))
    add(stranger, "b.txt", b"theirs", create_pr=True)
    hub.commit(REPO, {"b.txt": b"ours"})
    details = owner.get_discussion_details(REPO, 2, repo_type="dataset")
    assert details.conflicting_files == ["b.txt"]
    with pytest.raises(HfHubHTTPError) as error:
        owner.merge_pull_request(REPO, 2, repo_type="dataset")
    assert status_of(error) == 409


def test_tags_branches_refs_and_history(hub: Hub, owner: HfApi) -> None:
    add(owner, "a.txt", b"1")
    owner.create_tag(REPO, tag="v1.0.0", repo_type="dataset")
    add(owner, "a.txt", b"2")
    owner.create_branch(REPO, branch="next", repo_type="dataset")
    refs = owner.list_repo_refs(REPO, repo_type="dataset", include_pull_requests=True)
    assert [tag.name for tag in refs.tags] == ["v1.0.0"]
    assert {branch.name for branch in refs.branches} == {"main", "next"}
    assert hub.files(REPO, "v1.0.0")["a.txt"] == b"1"
    titles = [commit.title for commit in owner.list_repo_commits(REPO, repo_type="dataset")]
    assert titles == ["add a.txt", "add a.txt", "initial commit"]


def test_commits_that_meet_get_409(hub: Hub, owner: HfApi) -> None:
    hub.commit_s = 0.5
    first = owner.run_as_future(add, owner, "a.txt", b"1")
    while not hub.repo(REPO).busy:
        time.sleep(0.01)
    with pytest.raises(HfHubHTTPError) as error:
        add(HfApi(endpoint=hub.url, token=owner.token), "b.txt", b"2")
    assert status_of(error) == 409
    first.result()
    assert "a.txt" in hub.files(REPO)


def test_datasets_loads_from_here(hub: Hub, owner: HfApi, tmp_path: Path) -> None:
    pytest.importorskip("datasets")
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2, 3]}), tmp_path / "a.parquet")
    card = "---\nconfigs:\n- config_name: all\n  data_files:\n  - split: test\n    path: d/*\n---\n"
    owner.create_commit(
        REPO,
        [
            CommitOperationAdd("d/a.parquet", tmp_path / "a.parquet"),
            CommitOperationAdd("README.md", card.encode()),
        ],
        commit_message="data",
        repo_type="dataset",
    )
    code = f"import datasets; print(datasets.load_dataset({REPO!r}, 'all', split='test')['x'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=hub.environment(str(owner.token), tmp_path / "home"),
        capture_output=True,
        text=True,
        check=True,
    )
    assert "[1, 2, 3]" in done.stdout
