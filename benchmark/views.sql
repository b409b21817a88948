-- Scoring, once. Everything that is shown or exported of results reads these views.
--
-- An entry is one submission on one suite: the suite that it was run on, and every other suite whose
-- operators, in the same definitions, its run covers. Words as in DESIGN section 2 and 8.
-- What is costly over many verdicts is stored when the database is built (CREATE TABLE), sorted by
-- what readers ask for; the rest is views of that.

-- What kind of failure it was: the status, and the exception's name where the message has one.
CREATE MACRO error_class(status, message) AS
    concat_ws(': ', status, nullif(regexp_extract(coalesce(message, ''),
        '\b([A-Z][A-Za-z]*(?:Error|Exception|Failure)|OutOfResources)\b', 1), ''));

-- The trust level in force: the latest decision.
CREATE TABLE v_trust AS
SELECT
    submission,
    arg_max(trust, (decided_at, decided_by <> 'ingest')) AS trust,
    arg_max(reason, (decided_at, decided_by <> 'ingest')) AS trust_reason
FROM trust AS t
-- What somebody withdrew or flagged, no re-grade brings back: not one that was under way, nor one
-- of a machine that had not heard of it. Only another decision of a person does.
WHERE regrade IS NULL OR (
    SELECT arg_max(p.trust, (p.decided_at, p.decided_by <> 'ingest')) FROM trust AS p
    WHERE p.submission = t.submission AND p.regrade IS NULL
) NOT IN ('withdrawn', 'flagged')
GROUP BY submission;

-- Operators as defined now: the latest catalogued definition of each.
CREATE TABLE v_operator AS
SELECT * FROM operators
QUALIFY row_number() OVER (PARTITION BY operator ORDER BY catalogued_at DESC) = 1;

-- Members of every suite that anything was run on; one operator is a suite of its own.
CREATE TABLE v_suite_operator AS
SELECT DISTINCT suite, suite_digest, operator, operator_digest FROM suites
UNION
SELECT s.suite, s.suite_digest, r.operator, r.operator_digest
FROM submissions AS s JOIN run_operators AS r USING (submission)
WHERE contains(s.suite, '::');

-- The digest of each suite as defined now.
CREATE TABLE v_suite AS
SELECT
    suite,
    arg_max(suite_digest, catalogued_at) AS suite_digest,
    arg_max(description, catalogued_at) AS description
FROM suites
GROUP BY suite;

-- Suites that a submission is an entry of.
CREATE TABLE v_entry AS
SELECT submission, suite, suite_digest, true AS declared FROM submissions
UNION
SELECT r.submission, m.suite, m.suite_digest, false AS declared
FROM v_suite_operator AS m
JOIN run_operators AS r USING (operator, operator_digest)
JOIN submissions AS s USING (submission)
WHERE m.suite_digest <> s.suite_digest
GROUP BY r.submission, m.suite, m.suite_digest
HAVING count(*) = (
    SELECT count(*) FROM v_suite_operator AS whole
    WHERE whole.suite = m.suite AND whole.suite_digest = m.suite_digest
);

-- The re-grade in force of a submission: our latest on the hardware that it claims.
CREATE TABLE v_regrade AS
SELECT * FROM regrades
WHERE same_hardware AND outcome IN ('agrees', 'contradicts')
QUALIFY row_number() OVER (PARTITION BY submission ORDER BY ended_at DESC, regrade) = 1;

-- The verdict that counts for a candidate: ours where it was graded again, else the one claimed.
-- `regrade` is NULL for what is only claimed.
CREATE VIEW v_regraded AS
SELECT r.* FROM regrade_verdicts AS r SEMI JOIN v_regrade USING (submission, regrade);
CREATE VIEW v_verdict AS
SELECT * FROM v_regraded
UNION ALL BY NAME
SELECT v.* FROM verdicts AS v ANTI JOIN v_regraded USING (submission, operator, candidate);
CREATE VIEW v_timing AS
SELECT r.* FROM regrade_timings AS r SEMI JOIN v_regrade USING (submission, regrade)
UNION ALL BY NAME
SELECT t.* FROM timings AS t ANTI JOIN v_regraded USING (submission, operator, candidate);

-- Speed of a judged candidate: geometric mean over its timed cases.
CREATE TABLE v_speed AS
SELECT
    submission,
    operator,
    candidate,
    exp(avg(ln(speedup))) AS speedup,
    exp(avg(ln(roofline))) AS roofline,
    exp(avg(ln(device_us))) AS device_us,
    exp(avg(ln(baseline_us))) AS baseline_us,
    count(*) AS timed_cases
FROM v_timing
GROUP BY submission, operator, candidate;

-- Every attempt with its outcome.
CREATE VIEW v_attempt AS
SELECT
    a.submission,
    a.operator,
    a.attempt,
    a.candidate,
    a.note,
    a.seconds,
    coalesce(a.failure, v.status) AS status,
    v.message,
    v.chip,
    v.sku,
    v.attests,
    v.baseline,
    v.regrade,
    p.speedup,
    p.roofline,
    p.device_us,
    p.baseline_us
FROM attempts AS a
LEFT JOIN v_verdict AS v USING (submission, operator, candidate)
LEFT JOIN v_speed AS p USING (submission, operator, candidate);

-- The attempt that counts: the last one handed in, or the best by verdict, as the run declared.
CREATE TABLE v_result AS
SELECT a.*, count(*) OVER (PARTITION BY a.submission, a.operator) AS attempts
FROM v_attempt AS a JOIN submissions AS s USING (submission)
QUALIFY row_number() OVER (
    PARTITION BY a.submission, a.operator
    ORDER BY
        CASE WHEN s.selection = 'best' THEN (a.status = 'passed')::INTEGER END DESC NULLS LAST,
        CASE WHEN s.selection = 'best' THEN a.speedup END DESC NULLS LAST,
        a.attempt DESC
) = 1;

-- Tokens by operator. `unmetered` counts requests whose tokens the provider did not report.
CREATE TABLE v_usage AS
SELECT
    submission,
    operator,
    count(*) AS requests,
    sum(in_uncached) AS in_uncached,
    sum(in_cache_read) AS in_cache_read,
    sum(in_cache_write_5m + in_cache_write_1h) AS in_cache_write,
    sum(out_total) AS out_total,
    sum(out_reasoning) AS out_reasoning,
    sum(total) AS tokens,
    CASE WHEN count(cost_usd) = count(*) THEN sum(cost_usd) END AS cost_usd,
    count(*) FILTER (WHERE usage_source <> 'provider') AS unmetered
FROM usage
WHERE outcome <> 'budget_denied'
GROUP BY submission, operator;

-- Where a submission ran.
CREATE TABLE v_device AS
SELECT
    s.submission,
    s.chip,
    coalesce(max(v.sku), '') AS sku,
    coalesce(max(v.attests), '') AS attests
FROM submissions AS s LEFT JOIN verdicts AS v USING (submission)
GROUP BY s.submission, s.chip;

-- One operator of one entry. `capped` is what it adds to the score: min(speedup, 2) if solved, else
-- 0; NULL where speed does not count (metadata operators, chips that only interpret) or where our
-- own infrastructure failed.
CREATE TABLE v_cell AS
SELECT
    e.submission,
    e.suite,
    e.suite_digest,
    m.operator,
    o.source,
    o.family,
    o.kind,
    coalesce(r.status, 'no_candidate') AS status,
    coalesce(r.status = 'passed', false) AS solved,
    coalesce(r.status = 'infrastructure_error', false) AS excluded,
    CASE
        WHEN coalesce(r.status, 'no_candidate') <> 'passed'
            THEN error_class(coalesce(r.status, 'no_candidate'), coalesce(r.message, r.note))
    END AS error_class,
    r.attempt,
    coalesce(r.attempts, 0) AS attempts,
    r.candidate,
    r.message,
    r.note,
    r.baseline,
    CASE WHEN r.status = 'passed' THEN r.speedup END AS speedup,
    CASE WHEN r.status = 'passed' THEN r.roofline END AS roofline,
    CASE WHEN r.status = 'passed' THEN r.device_us END AS device_us,
    CASE WHEN r.status = 'passed' THEN r.baseline_us END AS baseline_us,
    CASE
        WHEN d.attests <> 'executed' OR o.kind = 'metadata' THEN NULL
        WHEN r.status = 'infrastructure_error' THEN NULL
        WHEN r.status = 'passed' THEN coalesce(least(r.speedup, 2.0), 0.0)
        ELSE 0.0
    END AS capped,
    u.requests,
    u.tokens,
    u.out_total,
    u.cost_usd,
    u.unmetered,
    r.seconds
FROM v_entry AS e
JOIN v_suite_operator AS m USING (suite, suite_digest)
JOIN v_device AS d USING (submission)
JOIN operators AS o
    ON o.operator = m.operator AND o.operator_digest = m.operator_digest
LEFT JOIN v_result AS r ON r.submission = e.submission AND r.operator = m.operator
LEFT JOIN v_usage AS u ON u.submission = e.submission AND u.operator = m.operator
QUALIFY row_number() OVER (
    PARTITION BY e.submission, e.suite, e.suite_digest, m.operator ORDER BY o.catalogued_at DESC
) = 1
ORDER BY e.suite, e.submission, m.operator;

-- One entry over a part of its suite: the operators of `sources` and `families` (empty lists: all).
-- Shares and means are over all operators of the part; one that is not solved counts 0.
-- Tokens of operators that were not metered are unknown, so sums over them are lower bounds, which
-- `metering` says; a cost that is not known of every metered operator is not known at all.
CREATE MACRO score_of(sources, families) AS TABLE
WITH sums AS (
    SELECT
        submission,
        suite,
        suite_digest,
        count(*) AS operators,
        count(*) FILTER (WHERE attempts > 0) AS attempted,
        count(*) FILTER (WHERE solved) AS solved,
        count(*) FILTER (WHERE excluded) AS infrastructure_errors,
        avg(capped) AS score,
        exp(avg(ln(speedup)) FILTER (WHERE solved AND kind <> 'metadata')) AS speedup,
        exp(avg(ln(roofline)) FILTER (WHERE solved AND kind <> 'metadata')) AS roofline,
        avg(CASE WHEN capped IS NULL THEN NULL
                 WHEN coalesce(speedup, 0) >= 1 THEN 1.0 ELSE 0.0 END) AS fast_1,
        sum(attempts)::BIGINT AS attempts,
        sum(requests)::BIGINT AS requests,
        sum(tokens)::BIGINT AS tokens,
        sum(out_total)::BIGINT AS out_tokens,
        CASE WHEN count(cost_usd) = count(tokens) THEN sum(cost_usd) END AS cost_usd,
        sum(unmetered)::BIGINT AS unmetered,
        count(tokens) AS metered_operators,
        sum(seconds) AS seconds
    FROM v_cell
    WHERE (len(sources) = 0 OR list_contains(sources, source))
        AND (len(families) = 0 OR list_contains(families, family))
    GROUP BY submission, suite, suite_digest
)
SELECT
    sums.*,
    solved / nullif(operators - infrastructure_errors, 0) AS solved_share,
    tokens / nullif(sums.solved, 0) AS tokens_per_solved,
    cost_usd / nullif(sums.solved, 0) AS cost_per_solved_usd,
    tokens / nullif(attempted, 0) AS tokens_per_operator,
    cost_usd / nullif(attempted, 0) AS cost_per_operator_usd,
    seconds / nullif(attempted, 0) AS seconds_per_operator,
    CASE
        WHEN s.kind NOT IN ('agent', 'model') THEN 'not applicable'
        WHEN metered_operators = 0 THEN 'none'
        WHEN unmetered > 0 OR metered_operators < attempted THEN 'partial'
        ELSE 'complete'
    END AS metering
FROM sums JOIN submissions AS s USING (submission);

-- One entry over the whole of its suite.
CREATE TABLE v_score AS SELECT * FROM score_of([]::VARCHAR[], []::VARCHAR[]);

-- Entries with all that a board shows of them, and whether they may be ranked. Ranked is the latest
-- entry of a method, model and submitter on a board that is neither flagged nor withdrawn and that
-- our infrastructure did not fail. `measure` says by what: the score, or on chips that only
-- interpret, where no time means anything, the share solved.
CREATE TABLE v_standing AS
SELECT
    c.*,
    s.run,
    s.method,
    s.model,
    s.kind,
    s.language,
    s.selection,
    s.submitter,
    s.organisation,
    s.open_weights,
    s.trained_on_benchmark,
    s.attempts_declared,
    s.complete,
    s.created_at,
    s.ingested_at,
    s.benchmark_version,
    d.chip,
    d.sku,
    d.attests,
    t.trust,
    t.trust_reason,
    g.regrade,
    g.outcome AS regrade_outcome,
    e.declared,
    CASE WHEN d.attests = 'executed' THEN 'score' ELSE 'solved' END AS measure,
    c.suite_digest = coalesce(v.suite_digest, c.suite_digest) AS current_suite,
    row_number() OVER (
        PARTITION BY s.method, s.model, s.submitter, d.chip, d.sku, c.suite, c.suite_digest
        ORDER BY s.created_at DESC, s.submission
    ) = 1 AS latest,
    -- Runs of the same by the same submitter that were handed in so far: more than they declare?
    count(*) OVER (
        PARTITION BY s.method, s.model, s.submitter, d.chip, d.sku, c.suite, c.suite_digest
        ORDER BY s.created_at, s.submission
    ) AS runs_seen,
    s.submitter <> '' AND s.attempts_declared < runs_seen AS attempts_understated,
    latest
        AND t.trust NOT IN ('flagged', 'withdrawn')
        AND c.infrastructure_errors = 0
        AND d.attests IN ('executed', 'interpreted') AS eligible
FROM v_score AS c
JOIN submissions AS s ON s.submission = c.submission
JOIN v_device AS d ON d.submission = c.submission
JOIN v_trust AS t ON t.submission = c.submission
JOIN v_entry AS e
    ON e.submission = c.submission AND e.suite = c.suite AND e.suite_digest = c.suite_digest
LEFT JOIN v_suite AS v ON v.suite = c.suite
LEFT JOIN v_regrade AS g ON g.submission = c.submission
ORDER BY c.suite, d.chip, d.sku, c.submission;

-- What ranks are computed from: one value an operator of each entry that may be ranked.
CREATE VIEW v_rank_value AS
SELECT
    e.suite,
    e.suite_digest,
    e.chip,
    e.sku,
    e.measure,
    e.submission,
    c.operator,
    CASE WHEN e.measure = 'score' THEN c.capped ELSE c.solved::DOUBLE END AS value
FROM v_standing AS e JOIN v_cell AS c USING (submission, suite, suite_digest)
WHERE e.eligible AND (e.measure <> 'score' OR c.capped IS NOT NULL);

-- The board. `rank` is shared by entries that cannot be told apart; [rank, rank_high] is the
-- interval. Entries that are not ranked have none.
CREATE VIEW v_rank AS
SELECT
    r.rank,
    r.rank_high,
    r.value_low,
    r.value_high,
    r.first_share,
    r.critical,
    e.*
FROM v_standing AS e
LEFT JOIN ranks AS r USING (submission, suite, suite_digest)
ORDER BY
    e.suite, e.chip, e.sku, r.rank NULLS LAST,
    CASE WHEN e.measure = 'score' THEN e.score ELSE e.solved_share END DESC NULLS LAST,
    e.method, e.model;

-- Share of a suite's operators that an entry solves with a speedup of at least `p`; at 0, solves.
CREATE VIEW v_fast_p AS
SELECT
    submission,
    suite,
    suite_digest,
    p,
    avg(CASE WHEN solved AND coalesce(speedup, 0) >= p THEN 1.0 ELSE 0.0 END) AS share
FROM v_cell CROSS JOIN (SELECT unnest(range(0, 41)) / 10.0 AS p)
WHERE capped IS NOT NULL
GROUP BY submission, suite, suite_digest, p;

-- Portability of the candidates that count: how many of a suite's operators compile for a target.
CREATE TABLE v_portability AS
SELECT
    c.submission,
    c.suite,
    c.suite_digest,
    p.target,
    count(*) FILTER (WHERE p.status = 'passed') AS compiled,
    count(*) AS tried,
    any_value(t.operators) AS operators
FROM v_cell AS c
JOIN portability AS p USING (submission, operator, candidate)
JOIN v_score AS t USING (submission, suite, suite_digest)
GROUP BY c.submission, c.suite, c.suite_digest, p.target
ORDER BY c.suite, c.submission, p.target;

-- Why candidates that count do not compile for a target.
CREATE TABLE v_portability_error AS
SELECT
    c.submission,
    c.suite,
    c.suite_digest,
    p.target,
    error_class(p.status, p.error) AS error_class,
    count(*) AS operators,
    min(c.operator) AS example,
    arg_min(p.error, c.operator) AS example_error
FROM v_cell AS c JOIN portability AS p USING (submission, operator, candidate)
WHERE p.status <> 'passed'
GROUP BY ALL
ORDER BY c.suite, c.submission, p.target, operators DESC;

-- Failures by kind.
CREATE TABLE v_failure AS
SELECT submission, suite, suite_digest, source, family, status, error_class, count(*) AS operators
FROM v_cell
WHERE NOT solved
GROUP BY ALL
ORDER BY suite, submission, operators DESC;

-- One operator of one method on one chip: the latest entry of the method there.
CREATE VIEW v_method_cell AS
SELECT
    e.method,
    e.model,
    e.submitter,
    e.kind AS method_kind,
    e.chip,
    e.sku,
    e.measure,
    c.*
FROM v_standing AS e JOIN v_cell AS c USING (submission, suite, suite_digest)
WHERE e.latest AND e.trust NOT IN ('flagged', 'withdrawn');

-- One method over all chips where it was run on the same suite. The gap is the share of operators
-- that it solves on one of them but not on all; the speed ratio is the geometric mean, over the
-- operators solved and timed on every chip that times, of the highest speedup over the lowest.
CREATE TABLE v_gap AS
WITH by_operator AS (
    SELECT
        method, model, submitter, suite, suite_digest, operator,
        bool_or(solved) AS anywhere,
        bool_and(solved) AS everywhere,
        CASE WHEN count(speedup) = count(*) FILTER (WHERE measure = 'score') AND count(speedup) > 1
            THEN max(speedup) / min(speedup) END AS ratio
    FROM v_method_cell
    GROUP BY ALL
), chips AS (
    SELECT
        method, model, submitter, suite, suite_digest,
        any_value(kind) AS kind,
        count(*) AS chips,
        min(solved_share) AS lowest_share,
        max(solved_share) AS highest_share
    FROM v_standing
    WHERE latest AND trust NOT IN ('flagged', 'withdrawn')
    GROUP BY ALL
)
SELECT
    method, model, submitter, suite, suite_digest, kind, chips, lowest_share, highest_share,
    count(*) AS operators,
    count(*) FILTER (WHERE anywhere) AS solved_anywhere,
    count(*) FILTER (WHERE everywhere) AS solved_everywhere,
    (count(*) FILTER (WHERE anywhere) - count(*) FILTER (WHERE everywhere)) / count(*) AS gap,
    exp(avg(ln(ratio))) AS speed_ratio
FROM chips JOIN by_operator USING (method, model, submitter, suite, suite_digest)
WHERE chips > 1
GROUP BY ALL
ORDER BY suite, gap DESC, method, model;
