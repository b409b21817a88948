"""Runs over a published data set: its cases are graded, its hash stands in every verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernelmark.benchmark.cli import app
from kernelmark.benchmark.dataset.build import MANIFEST, build
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.prompts import Setting
from kernelmark.benchmark.suites import get_suite, operator_digest
from kernelmark.evaluators.campaigns import running
from kernelmark.evaluators.campaigns.access import Access
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.jobs import export_job, import_results
from kernelmark.evaluators.campaigns.published import FILE, take_suite
from kernelmark.evaluators.grading.__main__ import JobError, read_job
from kernelmark.evaluators.grading.published import with_cases
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import get_operator

SAXPY, ADD = "cublas::cublasSaxpy_v2", "aten::add"
Publish = Callable[..., Path]


@pytest.fixture(scope="module")
def publish(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    """Builds a data set of the demo suite with some operators changed."""

    def make(*changed: Operator) -> Path:
        new = {operator.id: operator for operator in changed}
        operators = [new.get(op.id, op) for op in get_suite("demo").operators]
        root = tmp_path_factory.mktemp("published") / "dataset"
        build(root, Setting("a chip", "", "triton", ""), operators=operators)
        return root

    return make


@pytest.fixture(scope="module")
def shorter(publish: Publish) -> Path:
    """A data set from before SAXPY had all of its small cases."""
    saxpy = get_operator(SAXPY)
    return publish(with_cases(saxpy, [*saxpy.tier("small")[:2], *saxpy.tier("full")]))


def hash_of(root: Path) -> str:
    return str(json.loads((root / MANIFEST).read_text())["content_hash"])


def request(dataset: Path | str, suite: str = SAXPY, **more: object) -> running.Request:
    return running.Request(
        method="reference",
        suite=suite,
        chips=("interpreter",),
        cases_from=str(dataset),
        **more,  # type: ignore[arg-type]
    )


def test_cases_as_installed_make_the_installed_suite(publish: Publish, tmp_path: Path) -> None:
    suite, source, note = take_suite("demo", str(publish()), tmp_path)
    assert suite.digest == get_suite("demo").digest
    assert note == ""
    assert source.operator(ADD).oracle is get_operator(ADD).oracle


def test_other_cases_are_taken_and_said_in_a_line(shorter: Path, tmp_path: Path) -> None:
    suite, source, note = take_suite("demo", str(shorter), tmp_path)
    assert suite.digest != get_suite("demo").digest
    assert note.startswith(f"cases of {SAXPY} differ from those installed; those of {shorter}")
    assert len(source.operator(SAXPY).tier("small")) == 2
    assert operator_digest(source.operator(ADD)) == operator_digest(get_operator(ADD))


def test_another_definition_is_refused_in_a_line(publish: Publish, tmp_path: Path) -> None:
    add, saxpy = get_operator(ADD), get_operator(SAXPY)
    root = publish(
        replace(add, tolerance=replace(add.tolerance, limit=9.0)),
        replace(saxpy, baseline_name="other", signatures=(*saxpy.signatures, "f() -> int")),
    )
    with pytest.raises(UserError) as error:
        take_suite("demo", str(root), tmp_path)
    text = str(error.value)
    assert text.startswith(f"defined differently here than in {root}: {ADD} (tolerance); ")
    assert f"{SAXPY} (signatures, baseline)" in text
    assert "\n" not in text


def test_operators_that_were_not_published_are_named(publish: Publish, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"has no aten::mul, aten::rsub"):
        take_suite("first", str(publish()), tmp_path)


@pytest.fixture(scope="module")
def graded(shorter: Path, tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """A run over `shorter`, carried out after the data set is gone."""
    root = tmp_path_factory.mktemp("run")
    dataset = Path(shutil.copytree(shorter, root / "dataset"))
    said: list[str] = []
    folder = running.begin(request(dataset), root / "run", root / "runs", said.append)
    assert len(said) == 1
    assert said[0].startswith(f"cases of {SAXPY} differ")
    shutil.rmtree(dataset)
    folder = running.reopen(folder.root)
    running.carry_out(folder, Access("", "", ""), workers=1)
    return folder


def test_the_hash_stands_in_the_run_and_in_every_verdict(graded: RunFolder, shorter: Path) -> None:
    assert graded.run.dataset == hash_of(shorter)
    assert graded.run.cases_from.endswith("/dataset")
    (attempt,) = graded.attempts()
    verdict = graded.verdict(SAXPY, attempt.candidate)
    assert verdict is not None
    assert verdict.status == "passed"
    assert verdict.dataset == hash_of(shorter)
    judged = {comparison.case for comparison in verdict.comparisons}
    assert judged == {case.name for case in get_operator(SAXPY).tier("small")[:2]}


def test_without_a_data_set_there_is_no_hash(tmp_path: Path) -> None:
    asked = replace(request(""), cases_from="")
    folder = running.begin(asked, tmp_path / "run", tmp_path / "runs")
    assert (folder.run.dataset, folder.run.cases_from) == ("", "")
    assert not (folder.root / FILE).exists()
    assert folder.cases().cases is None


def test_cases_that_were_touched_are_not_gone_on_with(
    graded: RunFolder, shorter: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(graded.root, tmp_path / "run"))
    content = json.loads((root / FILE).read_text())
    dropped = {**content, "cases": {SAXPY: content["cases"][SAXPY][1:]}}
    for wrong, what in (
        (dropped, "defined differently now"),
        ({**content, "dataset": "0" * 64}, "holds cases of 000000000000, the run is over"),
        ({**content, "cases": {SAXPY: [{"name": "x"}]}}, "cannot be read"),
    ):
        (root / FILE).write_text(json.dumps(wrong))
        with pytest.raises(UserError, match=what):
            running.reopen(root)
    (root / FILE).unlink()
    with pytest.raises(UserError, match="no such file"):
        running.reopen(root)


def test_a_job_takes_the_cases_along(shorter: Path, tmp_path: Path) -> None:
    asked = request(shorter, grade=False)
    folder = running.begin(asked, tmp_path / "run", tmp_path / "runs")
    running.carry_out(folder, Access("", "", ""), workers=1, grading=False)
    assert export_job(folder, tmp_path / "job") == 1
    (tmp_path / "elsewhere").mkdir()
    moved = Path(shutil.move(tmp_path / "job", tmp_path / "elsewhere/job"))
    out = tmp_path / "out"
    module = "kernelmark.evaluators.grading"
    subprocess.run([sys.executable, "-m", module, str(moved), str(out)], check=True)
    assert import_results(folder, out) == 1
    (attempt,) = folder.attempts()
    verdict = folder.verdict(SAXPY, attempt.candidate)
    assert verdict is not None
    assert (verdict.status, verdict.dataset) == ("passed", hash_of(shorter))
    assert len({comparison.case for comparison in verdict.comparisons}) == 2

    job = json.loads((moved / "job.json").read_text())
    (moved / "job.json").write_text(json.dumps({**job, "cases": {}}))
    with pytest.raises(JobError, match=f"no cases of {SAXPY}"):
        read_job(moved)
    (moved / "job.json").write_text(json.dumps({**job, "cases": {SAXPY: "../../outside"}}))
    with pytest.raises(JobError, match="lies outside"):
        read_job(moved)


def test_verdicts_over_other_cases_do_not_come_into_a_run(
    graded: RunFolder, tmp_path: Path
) -> None:
    asked = replace(request(""), cases_from="")
    folder = running.begin(asked, tmp_path / "run", tmp_path / "runs")
    running.carry_out(folder, Access("", "", ""), workers=1, grading=False)
    with pytest.raises(
        UserError, match=f"graded over {graded.run.dataset[:12]}, the run is over i"
    ):
        import_results(folder, graded.root)


def test_the_command_line_says_it_too(shorter: Path, tmp_path: Path) -> None:
    words = ["run", "--method", "reference", "--suite", SAXPY, "--chip", "interpreter"]
    words += ["--no-grade", "--cases-from", str(shorter), "--out", str(tmp_path / "run")]
    done = CliRunner().invoke(app, words, env={"KERNELMARK_HOME": str(tmp_path / "home")})
    assert done.exit_code == 0, done.output
    assert f"kernelmark: cases of {SAXPY} differ from those installed" in done.stderr
    assert RunFolder.open(tmp_path / "run").run.dataset == hash_of(shorter)
