"""Sealing: secrets blanked out and told, schemas as committed, validation in time."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from run_making import TIME, Entry, Result, make_run

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import DEMO, get_suite
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.records import Attempt, Production
from kernelmark.evaluators.grading.records import Candidate, to_json
from kernelmark.submissions.bundle import MANIFEST, Disclosure, Submission, seal, submission_id
from kernelmark.submissions.catalogue import Catalogue
from kernelmark.submissions.redaction import SECRETS, Redactor, secret_kind, secret_values
from kernelmark.submissions.schemas import FOLDER, schemas
from kernelmark.submissions.tables import SCHEMAS
from kernelmark.submissions.validation import adapter, read_bundle

ENTRY = Entry({DEMO[0]: (Result(speedups=(2.0,), tokens=50),)}, kind="model")

#: one of each kind, made up
EXAMPLES = {
    "private key": "-----BEGIN RSA PRIVATE KEY-----\nMIIEow" + "A" * 40,
    "provider key": "sk-ant-api03-" + "aB3_" * 10,
    "Hugging Face token": "hf_" + "aBcDe" * 7,
    "GitHub token": "ghp_" + "a1B2" * 9,
    "GitLab token": "glpat-" + "a1B2" * 6,
    "Google key": "AIza" + "a1B2-" * 7,
    "AWS key": "AKIA" + "A1B2" * 4,
    "Slack token": "xoxb-" + "1234567890-abc",
    "JSON web token": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NSJ9.dozjgNryP4J3jVmNHl0w",
    "bearer token": "Authorization: Bearer abcdefghijklmnopqrstuvwx",
    "password in an address": "https://ann:hunter2@example.org/",
}


def test_every_kind_of_secret_has_an_example() -> None:
    assert set(EXAMPLES) == {shape.kind for shape in SECRETS}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_secrets_are_seen_and_blanked_out(kind: str) -> None:
    text = f"before {EXAMPLES[kind]} after"
    assert secret_kind(text) == kind
    redactor = Redactor()
    cleaned = redactor.clean({"a": [text, 12], "b": text}, "x.json")
    assert secret_kind(json.dumps(cleaned)) is None
    assert cleaned["a"][1] == 12
    assert cleaned["b"].startswith("before ")
    assert redactor.redacted.counts() == {kind: 2}
    assert redactor.redacted.lines() == [f"x.json: {kind}, 2 times"]


@pytest.mark.parametrize(
    "text",
    [
        "tl.load(mask-ask-sk-)",
        "task-id-123456789012345678901234",
        "a" * 64,
        "https://example.org/a:b@c",
        "hf_hub_download",
        "1234567890" * 5,
        "the bearer of this",
    ],
)
def test_what_only_looks_a_little_like_one_stays(text: str) -> None:
    assert secret_kind(text) is None
    assert Redactor().clean(text, "x") == text


def test_values_of_the_environment_are_secret_by_their_names() -> None:
    found = secret_values(
        {
            "MY_API_KEY": "zebra-crossing-42",
            "KEY": "short",
            "TOKEN_COUNT": "1" * 20,
            "PATH": "/x" * 9,
        }
    )
    assert found == ("zebra-crossing-42",)
    redactor = Redactor(found)
    assert redactor.clean(["see zebra-crossing-42!"], "f") == ["see [redacted]!"]
    assert redactor.redacted.counts() == {"value of an environment variable": 1}


def test_a_run_is_sealed_without_what_is_private(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ENTRY)
    production = folder.production(DEMO[0])
    (attempt,) = production.attempts
    data = to_json(attempt) | {"note": f"/home/ann/work and {EXAMPLES['provider key']}"}
    folder.record(Production(DEMO[0], (Attempt(**data),), complete=True))
    redactor = Redactor(("zebra-crossing-42",))
    disclosure = Disclosure(notes="by zebra-crossing-42 in C:\\Users\\ann\\x")
    submission = seal(folder, disclosure, tmp_path / "bundle", TIME, redactor)
    whole = "".join(path.read_text() for path in (tmp_path / "bundle").iterdir())
    assert "ann" not in whole.replace("channel", "").replace("cannot", "")
    assert "sk-ant" not in whole
    assert "zebra" not in whole
    assert submission.redactions == {
        "home folder": 2,
        "provider key": 1,
        "value of an environment variable": 1,
    }
    assert read_bundle(tmp_path / "bundle").problems == []


def with_source(root: Path, source: str) -> RunFolder:
    folder = make_run(root, ENTRY)
    candidate = Candidate(DEMO[1], source)
    folder.add_candidate(candidate)
    attempt = Attempt(DEMO[1], 1, candidate.id, "triton", created_at=TIME)
    folder.record(Production(DEMO[1], (attempt,), complete=True))
    return folder


def test_a_candidate_with_a_secret_is_not_sealed(tmp_path: Path) -> None:
    folder = with_source(tmp_path / "run", f"x = 1\nkey = '{EXAMPLES['GitHub token']}'\n")
    with pytest.raises(UserError, match=r"line 2: holds what looks like a secret \(GitHub token\)"):
        seal(folder, Disclosure(), tmp_path / "bundle", TIME)


def test_a_home_folder_in_a_candidate_stays_and_is_told(tmp_path: Path) -> None:
    redactor = Redactor()
    folder = with_source(tmp_path / "run", "x = 1\n# from /home/ann/kernels\n")
    seal(folder, Disclosure(), tmp_path / "bundle", TIME, redactor)
    (line,) = redactor.redacted.lines()
    assert line == f"candidates.jsonl: {DEMO[1]}, line 2: stays as it is: /home/ann"


def test_verdicts_that_only_the_method_asked_for_stay_behind(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "run", ENTRY)
    verdict = next((folder.root / "verdicts").iterdir())
    (folder.root / "verdicts" / "aten.mm.0123456789abcdef.json").write_text(verdict.read_text())
    seal(folder, Disclosure(), tmp_path / "bundle", TIME)
    assert len((tmp_path / "bundle" / "verdicts.jsonl").read_text().splitlines()) == 1


def test_an_id_outlives_new_fields(tmp_path: Path) -> None:
    seal(make_run(tmp_path / "run", ENTRY), Disclosure(), tmp_path / "bundle", TIME)
    manifest = json.loads((tmp_path / "bundle" / MANIFEST).read_text())
    assert manifest["id"] == submission_id(manifest)
    del manifest["run"]["budgets"], manifest["extra"]  # sealed before there were any
    manifest["id"] = submission_id(manifest)
    record = adapter(Submission).validate_json(json.dumps([manifest]))[0]
    assert record.id == submission_id(manifest)


@pytest.mark.parametrize("name", [*schemas()])
def test_committed_schemas_are_those_of_the_records(name: str) -> None:
    path = FOLDER / f"{name.split('.')[0]}.schema.json"
    assert json.loads(path.read_text()) == schemas()[name], (
        "records have changed: kernelmark submissions schema --out submissions/schema"
    )


def test_schemas_forbid_what_validation_forbids() -> None:
    text = json.dumps(schemas())
    assert text.count('"additionalProperties": false') >= 12


def test_every_column_of_a_claimed_verdict_is_one_of_a_regrade() -> None:
    for name in ("verdicts", "comparisons", "timings", "samples"):
        assert SCHEMAS[f"regrade_{name}"].names == ["regrade", *SCHEMAS[name].names]


def test_a_bundle_of_210_candidates_is_validated_in_two_seconds(tmp_path: Path) -> None:
    suite = get_suite("all")
    results = {id: (Result(speedups=(1.0, 2.0, 3.0)),) for id in suite.ids}
    folder = make_run(tmp_path / "run", Entry(results, suite="all"))
    seal(folder, Disclosure(), tmp_path / "bundle", TIME)
    members = Catalogue(suite.operators, (suite,)).members()
    read_bundle(tmp_path / "bundle", members)  # validators are built
    started = time.process_time()
    contents = read_bundle(tmp_path / "bundle", members)
    assert time.process_time() - started < 2.0
    assert contents.problems == []
    assert len(contents.verdicts) == len(suite.ids) >= 210
