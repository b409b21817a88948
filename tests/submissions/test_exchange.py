"""A results repository: the real client against a loopback Hub that also fails."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

pytest.importorskip("huggingface_hub")
from fakes.hub import Hub
from huggingface_hub import CommitOperationAdd, HfApi
from run_making import Entry, Result, demo_catalogue, make_run, submit_run
from test_regrading import found

from kernelmark.benchmark.errors import InfrastructureError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.campaigns.files import write_json
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.bundle import FILES, MANIFEST, Disclosure
from kernelmark.submissions.exchange import Exchange, Proposed
from kernelmark.submissions.home import Home
from kernelmark.submissions.inbox import sealed, waiting
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.intake import Tools, work
from kernelmark.submissions.lake import parts

REPO = "lab/results"
RESULTS = {operator: (Result(speedups=(1.0, 2.0)),) for operator in DEMO}
ENTRY = Entry(RESULTS, kind="model", model="m")


@pytest.fixture
def hub() -> Iterator[Hub]:
    with Hub() as hub:
        hub.add_user("lab")
        hub.add_user("ann")
        api = HfApi(endpoint=hub.url, token="hf_loopback_lab")
        api.create_repo(REPO, repo_type="dataset")
        yield hub


def exchange(hub: Hub, root: Path, user: str = "lab") -> Exchange:
    api = HfApi(endpoint=hub.url, token=f"hf_loopback_{user}")
    return Exchange(Home(root), api, REPO, lambda text: None, lambda seconds: None)


def propose(hub: Hub, root: Path, entry: Entry = ENTRY) -> tuple[str, Proposed]:
    """Ann hands a run in; the submission's id and the pull request."""
    theirs = exchange(hub, root / "ann", "ann")
    folder = make_run(root / f"run-{entry.method}", entry)
    with sealed(theirs.home, folder, Disclosure(submitter="ann")) as (submission, staging):
        return submission.id, theirs.propose(staging, submission.id)


def tools(ours: Exchange) -> Tools:
    def grade(candidate: object, tier: str) -> object:
        return found(candidate)  # type: ignore[arg-type]

    return Tools(demo_catalogue(), "nvidia", grade, "tests", ours)  # type: ignore[arg-type]


def comments(hub: Hub, number: int) -> list[str]:
    api = HfApi(endpoint=hub.url, token="hf_loopback_lab")
    details = api.get_discussion_details(REPO, number, repo_type="dataset")
    return [event.content for event in details.events if event.type == "comment"]


def status(hub: Hub, number: int) -> str:
    api = HfApi(endpoint=hub.url, token="hf_loopback_lab")
    return str(api.get_discussion_details(REPO, number, repo_type="dataset").status)


def test_from_a_pull_request_to_a_public_verdict(hub: Hub, tmp_path: Path) -> None:
    id, proposed = propose(hub, tmp_path)
    ours = exchange(hub, tmp_path / "home")
    (regraded,) = work(ours.home, tools(ours))
    assert regraded.conclusion.outcome == "agrees"
    assert status(hub, proposed.number) == "closed"
    said = comments(hub, proposed.number)
    assert sum("Accepted" in text for text in said) == 1
    assert sum("Graded again on nvidia (Testing 9000): **agrees**" in text for text in said) == 1
    files = hub.files(REPO)
    assert f"bundles/{id}/{MANIFEST}" in files
    assert {f"lake/{part.name}/part.json" for part in parts(ours.home)} <= set(files)
    assert b"config_name: verdicts" in files["README.md"]
    # Another round finds nothing to do, and says nothing again.
    asked = len(hub.requests)
    assert work(ours.home, tools(ours)) == []
    assert comments(hub, proposed.number) == said
    assert all(request.method == "GET" for request in hub.requests[asked:])
    # Anybody has the same board from the repository alone.
    other = exchange(hub, tmp_path / "other", "ann")
    assert len(other.sync().pulled) == len(parts(ours.home))
    build(other.home)
    with open_board(other.home) as connection:
        assert connection.execute("SELECT submission, trust FROM v_trust").fetchall() == [
            (id, "regraded")
        ]


def test_a_bad_bundle_is_answered_with_every_reason(hub: Hub, tmp_path: Path) -> None:
    theirs = exchange(hub, tmp_path / "ann", "ann")
    folder = make_run(tmp_path / "run", ENTRY)
    with sealed(theirs.home, folder, Disclosure()) as (submission, staging):
        (staging / "ledger.jsonl").write_text("changed")
        proposed = theirs.propose(staging, submission.id)
    ours = exchange(hub, tmp_path / "home")
    assert work(ours.home, tools(ours)) == []
    assert status(hub, proposed.number) == "closed"
    assert any(
        "its sha256 is not the manifest's" in text for text in comments(hub, proposed.number)
    )
    assert (ours.home.rejected / submission.id).is_dir()
    assert f"bundles/{submission.id}/{MANIFEST}" not in hub.files(REPO)


def test_proposing_twice_is_one_pull_request(hub: Hub, tmp_path: Path) -> None:
    theirs = exchange(hub, tmp_path / "ann", "ann")
    hub.cut("/commit/", "after")  # made, but the answer never came
    with sealed(theirs.home, make_run(tmp_path / "run", ENTRY), Disclosure()) as (sub, staging):
        first = theirs.propose(staging, sub.id)
        again = theirs.propose(staging, sub.id)
    assert first.number == again.number
    assert not again.new
    assert len(hub.repo(REPO).discussions) == 1


def test_nothing_but_the_bundle_comes_from_a_pull_request(hub: Hub, tmp_path: Path) -> None:
    id, proposed = propose(hub, tmp_path)
    HfApi(endpoint=hub.url, token="hf_loopback_ann").create_commit(
        REPO,
        [
            CommitOperationAdd("lake/trust-" + "0" * 32 + "/part.json", b"{}"),
            CommitOperationAdd("README.md", b"other"),
            CommitOperationAdd(f"bundles/{'b' * 64}/evil.py", b"1/0"),
        ],
        commit_message="more",
        repo_type="dataset",
        revision=f"refs/pr/{proposed.number}",
    )
    ours = exchange(hub, tmp_path / "home")
    (regraded,) = work(ours.home, tools(ours))
    assert regraded.submission == id
    files = hub.files(REPO)
    assert f"bundles/{id}/{MANIFEST}" in files
    assert not [path for path in files if "evil" in path or "0" * 32 in path]
    assert files["README.md"] != b"other"
    assert {path.split("/")[1] for path in files if path.startswith("lake/")} == {
        part.name for part in parts(ours.home)
    }
    # Handing it in again is answered with what became of it.
    theirs = exchange(hub, tmp_path / "ann", "ann")
    assert theirs.propose(ours.home.bundles / id, id) == Proposed(
        proposed.url, proposed.number, new=False
    )


def test_a_spoilt_copy_does_not_get_anothers_bundle_refused(hub: Hub, tmp_path: Path) -> None:
    api = HfApi(endpoint=hub.url, token="hf_loopback_lab")
    api.create_pull_request(REPO, "mine", repo_type="dataset")  # older than what it spoils
    id, proposed = propose(hub, tmp_path)
    for number in (1, None):
        copy = [CommitOperationAdd(f"bundles/{id}/{name}", b"spoilt") for name in FILES]
        HfApi(endpoint=hub.url, token="hf_loopback_lab").create_commit(
            REPO,
            copy,
            commit_message=f"Submission {id}",
            repo_type="dataset",
            revision=f"refs/pr/{number}" if number else None,
            create_pr=number is None,
        )
    ours = exchange(hub, tmp_path / "home")
    (regraded,) = work(ours.home, tools(ours))
    assert regraded.submission == id
    assert any("Accepted" in text for text in comments(hub, proposed.number))
    assert hub.files(REPO)[f"bundles/{id}/attempts.jsonl"] != b"spoilt"


def test_files_that_are_no_bundles_are_not_fetched(hub: Hub, tmp_path: Path) -> None:
    api = HfApi(endpoint=hub.url, token="hf_loopback_ann")
    id = "a" * 64
    for path in (f"bundles/{id}/evil.py", "bundles/short/run.json", "else/x.txt"):
        api.upload_file(
            path_or_fileobj=b"1/0",
            path_in_repo=path,
            repo_id=REPO,
            repo_type="dataset",
            create_pr=True,
        )
    ours = exchange(hub, tmp_path / "home")
    assert ours.fetch() == []
    assert waiting(ours.home) == []
    assert (ours.home.rejected / f"{id}.problems.json").is_file()


def test_sync_goes_both_ways_and_does_nothing_twice(hub: Hub, tmp_path: Path) -> None:
    homes = [exchange(hub, tmp_path / name) for name in ("one", "two")]
    for number, place in enumerate(homes):
        submit_run(place.home, tmp_path / f"run{number}", Entry(RESULTS, method=f"m{number}"))
        # Both have the third: what came by two ways counts once.
        submit_run(place.home, tmp_path / f"both{number}" / "run", ENTRY)
        ingest(place.home, demo_catalogue(), processes=1)
    first, second = homes
    assert len(first.sync().pushed) == 2  # the catalogue, and one part
    assert len(second.sync().pulled) == 1
    first.sync()
    assert [p.name for p in parts(first.home)] == [p.name for p in parts(second.home)]
    head = hub.repo(REPO).head.oid
    for place in homes:
        synced = place.sync()
        assert synced.pulled == synced.pushed == ()
        build(place.home)
        with open_board(place.home) as connection:
            for table, rows in (("submissions", 3), ("verdicts", 3 * len(DEMO)), ("trust", 3)):
                counted = connection.execute(f"SELECT count(*) FROM {table}").fetchone()
                assert counted == (rows,), table
    assert hub.repo(REPO).head.oid == head


def test_conflicts_limits_and_cut_connections_are_waited_out(hub: Hub, tmp_path: Path) -> None:
    ours = exchange(hub, tmp_path / "home")
    submit_run(ours.home, tmp_path / "run", ENTRY)
    ingest(ours.home, demo_catalogue(), processes=1)
    hub.fail("/commit/", 429, headers={"Retry-After": "1"})
    hub.fail("/commit/", 409)
    hub.fail("/commit/", 503)
    hub.cut("/commit/", "before")
    hub.beforehand("/commit/", lambda: hub.commit(REPO, {"notes.txt": b"theirs"}))
    assert len(ours.sync().pushed) == 2
    assert "notes.txt" in hub.files(REPO)
    other = exchange(hub, tmp_path / "other")
    hub.cut("/storage/", "half", method="GET")
    hub.fail("/tree/", 500)
    assert len(other.sync().pulled) == 2
    hub.fail("/commit/", 503, times=99)
    submit_run(ours.home, tmp_path / "more", replace(ENTRY, method="more"))
    ingest(ours.home, demo_catalogue(), processes=1)
    with pytest.raises(InfrastructureError, match="push failed 8 times"):
        ours.sync()


def test_a_part_that_was_changed_on_the_way_is_refused(hub: Hub, tmp_path: Path) -> None:
    ours = exchange(hub, tmp_path / "home")
    submit_run(ours.home, tmp_path / "run", ENTRY)
    ingest(ours.home, demo_catalogue(), processes=1)
    ours.sync()
    name = next(part.name for part in parts(ours.home) if part.kind == "submissions")
    hub.commit(REPO, {f"lake/{name}/trust.parquet": b"other"})
    other = exchange(hub, tmp_path / "other")
    with pytest.raises(InfrastructureError, match="sha256"):
        other.sync()
    assert name not in [part.name for part in parts(other.home)]
    assert not list(other.home.root.glob(".*"))


def test_what_was_told_is_not_told_again_by_another_machine(hub: Hub, tmp_path: Path) -> None:
    _, proposed = propose(hub, tmp_path)
    ours = exchange(hub, tmp_path / "home")
    work(ours.home, tools(ours))
    said = comments(hub, proposed.number)
    write_json(ours.home.root / "hub.json", [])  # killed before it was noted down
    ours.publish()
    assert comments(hub, proposed.number) == said
