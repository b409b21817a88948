"""Re-grades and intakes: compared with the claim, both kept, done once, whoever is killed."""

from __future__ import annotations

import contextlib
import multiprocessing
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from run_making import TIME, Entry, Result, demo_catalogue, submit_run

from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import DEMO
from kernelmark.evaluators.grading.records import Candidate, Status, Verdict
from kernelmark.submissions.agreement import Pair, Speed, agree, conclude, speed
from kernelmark.submissions.board import build, open_board
from kernelmark.submissions.bundle import Trust
from kernelmark.submissions.claims import Claim, ClaimLost, claim
from kernelmark.submissions.home import Home
from kernelmark.submissions.ingest import ingest
from kernelmark.submissions.intake import Tools, work
from kernelmark.submissions.lake import events, parts
from kernelmark.submissions.regrading import carry_out, is_done, plan
from kernelmark.submissions.trust import decide

RESULTS = {operator: (Result(speedups=(1.0, 2.0)),) for operator in DEMO}
ENTRY = Entry(RESULTS, kind="model", model="m")


def found(
    candidate: Candidate,
    speedup: float = 1.41,
    status: Status = "passed",
    sku: str = "Testing 9000",
) -> Verdict:
    """What a judge of ours might say, without one."""
    from run_making import _timing

    timings = (_timing(0, speedup), _timing(1, speedup)) if status == "passed" else ()
    return Verdict(
        operator=candidate.operator,
        candidate=candidate.id,
        chip="nvidia",
        attests="executed",
        status=status,
        message="graded again",
        sku=sku,
        timings=timings,
        tier="full",
        created_at=TIME,
    )


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A home with one submission on the board, self-reported."""
    home = Home(tmp_path / "home")
    submit_run(home, tmp_path / "run", ENTRY)
    ingest(home, demo_catalogue(), processes=1)
    build(home)
    return home


def one(home: Home, query: str) -> Any:
    with open_board(home) as connection:
        row = connection.execute(query).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


def regrade(home: Home, grade: Any, chip: str = "") -> Any:
    planned = plan(home, one(home, "SELECT submission FROM submissions"), chip, "tests")
    result = carry_out(home, planned, grade)
    build(home)
    return result


def test_agreement_raises_trust_and_our_verdicts_count(home: Home) -> None:
    claimed = one(home, "SELECT speedup FROM v_standing WHERE declared")
    result = regrade(home, lambda candidate, tier: found(candidate, 1.45))
    assert result.conclusion.outcome == "agrees"
    assert result.trust == one(home, "SELECT trust FROM v_trust") == "regraded"
    ratio = result.conclusion.ratio
    assert ratio.low <= ratio.value <= ratio.high
    assert one(home, "SELECT speedup FROM v_standing WHERE declared") == pytest.approx(1.45)
    assert claimed == pytest.approx(2**0.5)
    assert one(home, "SELECT avg(claimed_speedup) FROM agreements") == pytest.approx(2**0.5)
    assert one(home, "SELECT count(*) FROM verdicts") == len(DEMO)  # the claim is as it was
    assert one(home, "SELECT count(*) FROM timings WHERE speedup = 2.0") == len(DEMO)
    assert one(home, "SELECT count(*) FROM regrade_samples") == 4 * len(DEMO)
    assert one(home, "SELECT count(*) FROM v_result WHERE regrade IS NOT NULL") == len(DEMO)


def test_a_candidate_that_does_not_pass_contradicts(home: Home) -> None:
    def grade(candidate: Candidate, tier: str) -> Verdict:
        wrong = candidate.operator == "aten::mm"
        return found(candidate, status="wrong_values" if wrong else "passed")

    result = regrade(home, grade)
    assert result.conclusion.outcome == "contradicts"
    assert result.conclusion.reason == "aten::mm: claimed passed, found wrong_values"
    assert one(home, "SELECT trust, trust_reason FROM v_trust") == (
        "flagged",
        "aten::mm: claimed passed, found wrong_values",
    )
    assert one(home, "SELECT eligible FROM v_standing WHERE declared") is False
    assert one(home, "SELECT solved FROM v_standing WHERE declared") == len(DEMO) - 1
    both = "SELECT claimed_status, status FROM agreements WHERE operator = 'aten::mm'"
    assert one(home, both) == ("passed", "wrong_values")


def test_a_speed_that_is_not_there_contradicts(home: Home) -> None:
    result = regrade(home, lambda candidate, tier: found(candidate, 1.0))
    assert result.conclusion.outcome == "contradicts"
    assert result.conclusion.reason.startswith("over all operators 0.71 of the claimed speed")
    assert one(home, "SELECT speed_ratio FROM regrades") == pytest.approx(0.5**0.5)


def test_other_hardware_says_nothing_for_or_against(home: Home) -> None:
    result = regrade(home, lambda candidate, tier: found(candidate, 0.5, sku="Other 1"))
    assert result.conclusion.outcome == "elsewhere"
    assert one(home, "SELECT trust FROM v_trust") == "self_reported"
    assert one(home, "SELECT speedup FROM v_standing WHERE declared") == pytest.approx(2**0.5)


def test_what_our_infrastructure_failed_is_not_held_against_anybody(home: Home) -> None:
    def grade(candidate: Candidate, tier: str) -> Verdict:
        bad = candidate.operator == "aten::mm"
        return found(candidate, status="infrastructure_error" if bad else "passed")

    result = regrade(home, grade)
    assert result.conclusion.outcome == "incomplete"
    assert one(home, "SELECT trust FROM v_trust") == "self_reported"
    assert one(home, "SELECT agrees FROM agreements WHERE operator = 'aten::mm'") is None


def test_what_was_withdrawn_stays_withdrawn(home: Home) -> None:
    submission = one(home, "SELECT submission FROM submissions")
    with pytest.raises(UserError, match="needs a reason"):
        decide(home, submission, "withdrawn", " ", "me")
    decide(home, submission, "withdrawn", "a leak", "me")
    build(home)
    assert regrade(home, lambda candidate, tier: found(candidate)).trust == "withdrawn"
    assert one(home, "SELECT count(*) FROM trust") == 2
    assert one(home, "SELECT count(*) FROM verdicts") == len(DEMO)


@pytest.mark.parametrize("level", ["withdrawn", "flagged"])
def test_a_regrade_under_way_brings_nothing_back(home: Home, level: Trust) -> None:
    submission = one(home, "SELECT submission FROM submissions")
    planned = plan(home, submission, "", "tests")  # as another machine, which hears of it later
    decide(home, submission, level, "a leak", "me")
    carry_out(home, planned, lambda candidate, tier: found(candidate))
    build(home)
    assert one(home, "SELECT trust, trust_reason FROM v_trust") == (level, "a leak")
    assert one(home, "SELECT eligible FROM v_standing WHERE declared") is False
    assert one(home, "SELECT count(*) FROM trust") == 3
    decide(home, submission, "self_reported", "a mistake", "me")
    build(home)
    assert one(home, "SELECT trust FROM v_trust") == "self_reported"


def test_a_regrade_that_was_killed_goes_on(home: Home) -> None:
    planned = plan(home, one(home, "SELECT submission FROM submissions"), "", "tests", once=True)
    graded: list[str] = []

    def dying(candidate: Candidate, tier: str) -> Verdict:
        if len(graded) == 3:
            raise KeyboardInterrupt
        graded.append(candidate.operator)
        return found(candidate)

    with pytest.raises(KeyboardInterrupt):
        carry_out(home, planned, dying)
    assert not is_done(home, planned)

    def going_on(candidate: Candidate, tier: str) -> Verdict:
        graded.append(candidate.operator)
        return found(candidate)

    carry_out(home, planned, going_on)
    assert sorted(graded) == sorted(DEMO)
    assert is_done(home, planned)
    assert not any(home.regrades.iterdir())


def test_an_operator_defined_otherwise_since_is_not_graded(home: Home) -> None:
    planned = plan(home, one(home, "SELECT submission FROM submissions"), "", "tests")
    first, *rest = planned.claimed
    planned = replace(planned, claimed=(replace(first, unfit="defined differently"), *rest))
    result = carry_out(home, planned, lambda candidate, tier: found(candidate))
    assert result.conclusion.outcome == "incomplete"
    assert result.agreements[0].agrees is None


def test_speeds_are_paired_and_modest_claims_are_fine() -> None:
    claimed, slow, fast = Speed(2.0, 1.9, 2.1), Speed(1.6, 1.55, 1.65), Speed(3.0, 2.9, 3.1)
    pair = Pair("o", "c", "passed", "passed", claimed, claimed)
    assert agree(pair).agrees
    assert agree(replace(pair, found=fast)).agrees
    lower = agree(replace(pair, found=slow))
    assert lower.agrees is False
    assert lower.ratio is not None
    assert lower.ratio.high == pytest.approx(1.65 / 1.9)
    assert speed([(2.0, 1.0, 4.0), (8.0, 4.0, 16.0)]) == Speed(*map(pytest.approx, (4, 2, 8)))  # type: ignore[arg-type]
    assert conclude([lower] + [agree(pair)] * 40, same_hardware=True).outcome == "agrees"
    assert conclude([lower] * 3 + [agree(pair)] * 7, same_hardware=True).outcome == "contradicts"


def test_a_claim_is_one_owners_until_it_dies(tmp_path: Path) -> None:
    with claim(tmp_path, "x", 30, 0.05) as mine:
        assert mine is not None
        with claim(tmp_path, "x", 30, 0.05) as other:
            assert other is None
    with claim(tmp_path, "x", 30, 0.05) as again:
        assert again is not None
    assert not list(tmp_path.iterdir())


def test_a_dead_owners_claim_is_taken_over_and_noticed(tmp_path: Path) -> None:
    with claim(tmp_path, "x", 30, 3600) as stalled:  # its heart does not beat
        assert stalled is not None
        time.sleep(0.3)
        with claim(tmp_path, "x", 0.2, 3600) as taken:
            assert taken is not None
            taken.check()
            with pytest.raises(ClaimLost):
                stalled.check()
        assert not (tmp_path / "x").exists()


def test_of_many_that_take_over_one_gets_it(tmp_path: Path) -> None:
    for _ in range(10):
        (tmp_path / "x").write_text("dead\n")
        time.sleep(0.06)
        owners: list[Claim] = []
        gate = threading.Barrier(8)

        def take(gate: threading.Barrier = gate, owners: list[Claim] = owners) -> None:
            gate.wait()
            with claim(tmp_path, "x", 0.05, 0.01) as mine, contextlib.suppress(ClaimLost):
                if mine is not None:
                    time.sleep(0.2)
                    mine.check()  # who had it for a moment finds that it is another's
                    owners.append(mine)

        threads = [threading.Thread(target=take) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(owners) == 1


def _intake(root: Path, chip: str, log: Path, speedup: float = 1.41) -> None:
    def grade(candidate: Candidate, tier: str) -> Verdict:
        with log.open("a") as file:
            file.write(f"{candidate.id} {chip}\n")
        time.sleep(0.02)
        return replace(found(candidate, speedup), chip=chip)

    tools = Tools(demo_catalogue(), chip, grade, f"intake {chip}")
    work(Home(root), tools)


def test_intakes_of_two_chips_share_a_queue_and_do_nothing_twice(tmp_path: Path) -> None:
    home, log = Home(tmp_path / "home"), tmp_path / "log"
    for number in range(4):
        chip = ("nvidia", "amd")[number % 2]
        entry = replace(ENTRY, method=f"m{number}", chip=chip)
        submit_run(home, tmp_path / f"run{number}", entry)
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_intake, args=(home.root, chip, log))
        for chip in ("nvidia", "nvidia", "amd")
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    # Whoever came late may have found its queue taken; then another round has nothing left to do.
    _intake(home.root, "nvidia", log)
    _intake(home.root, "amd", log)
    graded = log.read_text().split("\n")[:-1]
    assert len(graded) == len(set(graded)) == 4 * len(DEMO)
    assert one(home, "SELECT count(*) FROM regrades WHERE outcome = 'agrees'") == 4
    assert one(home, "SELECT count(*) FROM v_trust WHERE trust = 'regraded'") == 4
    assert not [path for path in home.claims.iterdir() if not path.name.startswith(".")]


def test_every_event_is_in_one_part(home: Home) -> None:
    regrade(home, lambda candidate, tier: found(candidate))
    held = [event for part in parts(home) for event in part.events]
    assert len(held) == len(set(held)) == len(events(home))
