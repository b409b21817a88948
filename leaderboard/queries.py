"""Every query of the app, over the tables and views of `benchmark/views.sql`."""

from __future__ import annotations

#: boards that there are: a suite on a chip
BOARDS = """
SELECT suite, chip, sku, count(*)::INTEGER AS entries,
       bool_or(declared) AS declared, max(operators) AS operators
FROM v_standing WHERE latest GROUP BY suite, chip, sku
ORDER BY bool_or(declared) DESC, min(measure), max(operators) DESC, count(*) DESC, suite, chip, sku
"""

_ON_BOARD = "e.suite = $suite AND e.chip = $chip AND e.sku = $sku AND e.latest"
_NEWEST = """e.suite_digest = (SELECT suite_digest FROM v_standing
    WHERE suite = $suite AND chip = $chip AND sku = $sku
    ORDER BY current_suite DESC, created_at DESC LIMIT 1)"""

BOARD = f"SELECT e.* FROM v_rank AS e WHERE {_ON_BOARD} AND {_NEWEST}"
#: the same over a part of the suite; ranks are to be made anew
BOARD_PART = f"""
SELECT e.* REPLACE ({{columns}})
FROM v_rank AS e JOIN score_of($sources, $families) AS p USING (submission, suite, suite_digest)
WHERE {_ON_BOARD} AND {_NEWEST}
"""
SCORE_COLUMNS = """
SELECT column_name FROM information_schema.columns WHERE table_name = 'v_score'
AND column_name NOT IN ('submission', 'suite', 'suite_digest')
"""
BOARD_VALUES = f"""
SELECT e.submission, c.operator,
    CASE WHEN e.measure = 'score' THEN c.capped ELSE c.solved::DOUBLE END AS value
FROM v_standing AS e JOIN v_cell AS c USING (submission, suite, suite_digest)
WHERE {_ON_BOARD} AND {_NEWEST} AND e.eligible
    AND (len($sources) = 0 OR list_contains($sources, c.source))
    AND (len($families) = 0 OR list_contains($families, c.family))
"""
PARTS = """
SELECT DISTINCT o.source, o.family FROM v_suite_operator AS m JOIN v_operator AS o USING (operator)
WHERE m.suite = $suite ORDER BY ALL
"""

CELLS = f"""
SELECT c.*, e.method, e.model, e.kind AS method_kind, e.submitter
FROM v_standing AS e JOIN v_cell AS c USING (submission, suite, suite_digest)
WHERE {_ON_BOARD} AND {_NEWEST}
    AND (len($sources) = 0 OR list_contains($sources, c.source))
    AND (len($families) = 0 OR list_contains($families, c.family))
"""
CELLS_OF = f"{CELLS} AND list_contains($entries, e.submission) ORDER BY c.operator"
OPERATOR_SUMMARY = f"""
SELECT operator, any_value(source) AS source, any_value(family) AS family, any_value(kind) AS kind,
    count(*) AS entries, count(*) FILTER (WHERE solved) AS solved, max(speedup) AS best_speedup,
    max(roofline) AS best_roofline, median(speedup) AS median_speedup,
    mode(error_class) AS usual_failure
FROM ({CELLS}) GROUP BY operator ORDER BY operator
"""
FAST_P = """
SELECT p, share, submission FROM v_fast_p
WHERE suite = $suite AND list_contains($entries, submission) ORDER BY submission, p
"""

OPERATOR = "SELECT * FROM v_operator WHERE operator = $operator"
OPERATORS = """
SELECT operator, count(r.submission)::INTEGER AS entries
FROM v_operator AS o LEFT JOIN v_result AS r USING (operator) GROUP BY operator ORDER BY operator
"""
CASES = """
SELECT c."case", c.tier, c.call, c.origin, c.flops, c.nbytes,
    min(t.floor_us) AS floor_us, min(t.device_us) AS best_us, median(t.baseline_us) AS baseline_us
FROM v_operator AS o JOIN cases AS c USING (operator, operator_digest)
LEFT JOIN (SELECT t.* FROM timings AS t JOIN v_device AS d USING (submission)
    WHERE t.operator = $operator AND d.chip = $chip AND d.sku = $sku) AS t
    ON t."case" = c."case" AND t.operator = c.operator
WHERE o.operator = $operator
GROUP BY ALL ORDER BY tier, "case"
"""
OPERATOR_CHIPS = """
SELECT d.chip, d.sku, count(*)::INTEGER AS entries
FROM v_result AS r JOIN v_device AS d USING (submission)
WHERE r.operator = $operator GROUP BY ALL ORDER BY max(r.speedup) IS NULL, entries DESC, d.chip
"""
OPERATOR_RESULTS = """
SELECT s.method, s.model, s.kind, s.submitter, d.chip, d.sku, r.status, r.speedup, r.roofline,
    r.device_us, r.baseline_us, r.baseline, r.attempts, coalesce(r.message, r.note) AS message,
    r.submission, r.candidate, t.trust, s.created_at
FROM v_result AS r JOIN submissions AS s USING (submission) JOIN v_device AS d USING (submission)
JOIN v_trust AS t USING (submission)
WHERE r.operator = $operator AND d.chip = $chip AND d.sku = $sku
ORDER BY r.status = 'passed' DESC, r.speedup DESC NULLS LAST, s.method
LIMIT 500
"""
OPERATOR_TIMINGS = """
SELECT s.method, s.model, s.submitter, r.submission, t."case", t.device_us, t.baseline_us,
    t.speedup, t.speedup_low, t.speedup_high, t.floor_us, t.roofline, t.latency_us,
    t.baseline_latency_us, t.clock
FROM v_result AS r
JOIN timings AS t USING (submission, operator, candidate)
JOIN submissions AS s USING (submission) JOIN v_device AS d USING (submission)
WHERE r.operator = $operator AND t.operator = $operator AND r.status = 'passed'
    AND d.chip = $chip AND d.sku = $sku
ORDER BY t."case", t.speedup DESC
"""
OPERATOR_FAILURES = """
SELECT error_class(r.status, coalesce(r.message, r.note)) AS error_class, count(*) AS entries,
    min(coalesce(r.message, r.note)) AS example, min(r.submission) AS submission
FROM v_result AS r JOIN v_device AS d USING (submission)
WHERE r.operator = $operator AND r.status <> 'passed' AND d.chip = $chip AND d.sku = $sku
GROUP BY ALL ORDER BY entries DESC, error_class
"""

ENTRIES = """
SELECT submission, any_value(method) AS method, any_value(model) AS model, any_value(chip) AS chip,
    any_value(sku) AS sku, any_value(submitter) AS submitter, max(created_at) AS created_at
FROM v_standing GROUP BY submission ORDER BY created_at DESC, submission
"""
ENTRY = """
SELECT r.* FROM v_rank AS r WHERE submission = $submission ORDER BY declared DESC, suite
"""
SUBMISSION = "SELECT * FROM submissions WHERE submission = $submission"
TRUST = """
SELECT decided_at, trust, reason, decided_by FROM trust WHERE submission = $submission
ORDER BY decided_at
"""
REGRADES = "SELECT * FROM regrades WHERE submission = $submission ORDER BY started_at"
AGREEMENTS = """
SELECT * FROM agreements WHERE submission = $submission ORDER BY agrees, operator
"""
ENTRY_CELLS = """
SELECT *, coalesce(nullif(message, ''), note) AS said FROM v_cell
WHERE submission = $submission AND suite = $suite AND suite_digest = $suite_digest
ORDER BY operator
"""
ATTEMPTS = """
SELECT attempt, candidate, status, speedup, seconds, note, message FROM v_attempt
WHERE submission = $submission AND operator = $operator ORDER BY attempt
"""
VERDICT = """
SELECT * FROM verdicts WHERE submission = $submission AND operator = $operator
  AND candidate = $candidate
"""
SOURCE = """
SELECT source, language, entry FROM candidates WHERE submission = $submission
  AND operator = $operator AND candidate = $candidate
"""
COMPARISONS = """
SELECT "case", draw, result, status, max_error, p999_error, error_limit, bad, total, worst_index,
       got, expected, detail
FROM comparisons WHERE submission = $submission AND operator = $operator
  AND candidate = $candidate
ORDER BY status = 'passed', max_error DESC NULLS LAST
"""
TIMINGS = """
SELECT * EXCLUDE (submission, operator, candidate) FROM timings
WHERE submission = $submission AND operator = $operator AND candidate = $candidate
ORDER BY "case"
"""
SAMPLES = """
SELECT side, unnest(device_us) AS device_us, generate_subscripts(device_us, 1) AS number
FROM samples WHERE submission = $submission AND operator = $operator
  AND candidate = $candidate AND "case" = $case
ORDER BY side DESC, number
"""
PORTABILITY = """
SELECT target, status, error, occupancy, matrix_instructions, kernels FROM portability
WHERE submission = $submission AND operator = $operator AND candidate = $candidate
ORDER BY target
"""
USAGE = "SELECT * FROM v_usage WHERE submission = $submission ORDER BY operator"
OPERATOR_USAGE = """
SELECT attempt, request, api, model_requested, model_served, outcome, usage_source, in_uncached,
    in_cache_read, in_cache_write_5m + in_cache_write_1h AS in_cache_write, out_total,
    out_reasoning, total, cost_usd, http_status, started_at
FROM usage WHERE submission = $submission AND operator = $operator ORDER BY started_at, request
"""

ENTRY_PORTABILITY = """
SELECT target, compiled, tried, compiled / tried AS share FROM v_portability
WHERE submission = $submission AND suite = $suite AND suite_digest = $suite_digest ORDER BY target
"""
ENTRY_PORTABILITY_ERRORS = """
SELECT target, error_class, operators, example, example_error FROM v_portability_error
WHERE submission = $submission AND suite = $suite AND suite_digest = $suite_digest
ORDER BY target, operators DESC
"""

PAIR = """
SELECT operator, any_value(source) AS source, any_value(family) AS family,
    any_value(status) FILTER (WHERE submission = $first) AS first_status,
    any_value(status) FILTER (WHERE submission = $second) AS second_status,
    any_value(capped) FILTER (WHERE submission = $first) AS first_capped,
    any_value(capped) FILTER (WHERE submission = $second) AS second_capped,
    bool_or(solved) FILTER (WHERE submission = $first) AS first_solved,
    bool_or(solved) FILTER (WHERE submission = $second) AS second_solved,
    any_value(speedup) FILTER (WHERE submission = $first) AS first_speedup,
    any_value(speedup) FILTER (WHERE submission = $second) AS second_speedup
FROM v_cell WHERE suite = $suite AND suite_digest = $suite_digest
    AND submission IN ($first, $second) AND NOT excluded
GROUP BY operator HAVING count(*) = CASE WHEN $first = $second THEN 1 ELSE 2 END ORDER BY operator
"""
SUITE_ENTRIES = """
SELECT e.*, (SELECT entries FROM ranks AS k WHERE (k.submission, k.suite, k.suite_digest) =
    (e.submission, e.suite, e.suite_digest)) AS ranked_entries
FROM v_rank AS e WHERE suite = $suite AND suite_digest = $suite_digest
"""
SUITES = """
SELECT suite, suite_digest, count(*)::INTEGER AS entries, max(operators) AS operators
FROM v_standing WHERE latest AND current_suite GROUP BY ALL
ORDER BY bool_or(declared) DESC, operators DESC, suite
"""

GAPS = "SELECT * FROM v_gap WHERE suite = $suite AND suite_digest = $suite_digest"
BY_CHIP = """
SELECT method, model, submitter, kind, chip, sku, solved_share, score, speedup, solved, operators,
    rank, rank_high, submission
FROM v_rank WHERE suite = $suite AND suite_digest = $suite_digest AND latest
    AND trust NOT IN ('flagged', 'withdrawn')
ORDER BY method, model, submitter, chip, sku
"""
ERRORS_BY_CHIP = """
SELECT error_class, chip, sku, count(*) AS operators,
    count(DISTINCT operator) AS distinct_operators, min(operator) AS example
FROM v_method_cell WHERE suite = $suite AND suite_digest = $suite_digest AND NOT solved
    AND error_class <> 'no_candidate'
GROUP BY ALL ORDER BY operators DESC, error_class
"""
OPERATORS_BY_CHIP = """
WITH by_chip AS (
    SELECT operator, chip, sku, count(*) FILTER (WHERE solved) AS solved, count(*) AS entries,
        mode(error_class) FILTER (WHERE NOT solved) AS usual_failure
    FROM v_method_cell WHERE suite = $suite AND suite_digest = $suite_digest GROUP BY ALL
)
SELECT *, solved / entries AS share FROM by_chip
QUALIFY max(solved / entries) OVER (PARTITION BY operator)
    > min(solved / entries) OVER (PARTITION BY operator)
ORDER BY max(solved / entries) OVER (PARTITION BY operator)
    - min(solved / entries) OVER (PARTITION BY operator) DESC, operator, chip
"""
PORTABLE = """
SELECT e.method, e.model, e.submitter, e.chip, e.sku, p.* FROM v_portability AS p
JOIN v_standing AS e USING (submission, suite, suite_digest)
WHERE p.suite = $suite AND p.suite_digest = $suite_digest AND e.latest
    AND e.trust NOT IN ('flagged', 'withdrawn')
ORDER BY e.method, e.model, e.chip, p.target
"""
PORTABILITY_ERRORS = """
SELECT p.target, p.error_class, sum(p.operators)::BIGINT AS candidates, min(p.example) AS example,
    arg_min(p.example_error, p.example) AS example_error
FROM v_portability_error AS p JOIN v_standing AS e USING (submission, suite, suite_digest)
WHERE p.suite = $suite AND p.suite_digest = $suite_digest AND e.latest
    AND e.trust NOT IN ('flagged', 'withdrawn')
GROUP BY ALL ORDER BY candidates DESC, p.target
"""
FAILURES = """
SELECT e.method, e.model, e.submitter, e.chip, e.sku, f.* FROM v_failure AS f
JOIN v_standing AS e USING (submission, suite, suite_digest)
WHERE f.suite = $suite AND f.suite_digest = $suite_digest AND e.latest
    AND e.trust NOT IN ('flagged', 'withdrawn')
"""

BUILD = "SELECT * FROM build"
TABLE_SIZES = """
SELECT table_name AS name, estimated_size AS rows FROM duckdb_tables()
UNION ALL SELECT view_name, NULL FROM duckdb_views() WHERE NOT internal
ORDER BY name
"""
