"""Planted bugs of rooms that other tables leave out.

Marks, spool, remote objects, faults, page, settings, security, metadata, metrics, tables, admin, compat.
"""

from __future__ import annotations

from tests.mutants.mutant import Mutant

ROOMS = [
    # -- marks of repeated writes --------------------------------------------------------------------------------------
    Mutant(
        "a mark of another cluster counts",
        "marks/verdict.py",
        "if mark.cluster and cluster and mark.cluster != cluster:",
        "if mark.cluster and not cluster and mark.cluster != cluster:",
        ("tests/unit/marks",),
    ),
    Mutant(
        "a topic that was made again keeps its marks",
        "marks/verdict.py",
        "if topic_id and now and now != topic_id:",
        "if topic_id and not now:",
        ("tests/unit/marks",),
    ),
    Mutant(
        "a repetition with fewer rows passes",
        "marks/verdict.py",
        "if rows != mark.rows:",
        "if rows > mark.rows:",
        ("tests/unit/marks",),
    ),
    Mutant(
        "a coordinator that has moved ends the look for a mark",
        "marks/looks.py",
        "coordinator, moved_ms = None, moved_ms + wait_ms",
        "moved_ms = moved_ms + wait_ms",
        ("tests/unit/marks", "tests/integration/test_repeated_writes.py"),
    ),
    Mutant(
        "an error of one partition's offset counts as no mark",
        "marks/looks.py",
        "return answer.error_code or next(filter(None, codes), 0)",
        "return answer.error_code",
        ("tests/unit/marks",),
    ),
    Mutant(
        "a mark of several parts is read as whole",
        "marks/mark.py",
        'is_done=bool(_count(fields.get("done", "1"))),',
        "is_done=True,",
        ("tests/unit/marks",),
    ),
    # -- spool ---------------------------------------------------------------------------------------------------------
    Mutant(
        "progress of the spool goes back",
        "spool/state.py",
        "item.resolved_rank, item.last_offset = max(item.resolved_rank, rank), offset",
        "item.resolved_rank, item.last_offset = rank, offset",
        ("tests/unit/spool",),
    ),
    Mutant(
        "a new producer id begins while batches of the former are open",
        "spool/state.py",
        "if item.resolved_rank < first_rank:",
        "if item.resolved_rank + 1 < first_rank:",
        ("tests/unit/spool",),
    ),
    Mutant(
        "lost records of a spool are counted at the end only",
        "spool/recovery.py",
        "missing = max(batch.rank - expected[batch.reference], 0)",
        "missing = 0",
        ("tests/unit/spool",),
    ),
    Mutant(
        "a batch whose last record is resolved is sent again",
        "spool/recovery.py",
        "batch.last_rank >= table[batch.reference].resolved_rank",
        "batch.last_rank + 1 >= table[batch.reference].resolved_rank",
        ("tests/unit/spool",),
    ),
    # -- objects -------------------------------------------------------------------------------------------------------
    Mutant(
        "a weak ETag is an identity",
        "loader/opening/remote/web_objects.py",
        'etag = etag if etag.startswith(\'"\') else ""',
        "etag = etag",
        ("tests/unit/loader/opening", "tests/integration/test_load_addresses.py"),
    ),
    Mutant(
        "an answer with other bytes than the requested ones is taken",
        "loader/opening/remote/web_objects.py",
        "(int(match[1]), int(match[2]) + 1) != (start, end):",
        "int(match[2]) + 1 - int(match[1]) != end - start:",
        ("tests/unit/loader/opening", "tests/integration/test_load_addresses.py"),
    ),
    # -- faults, what was asked, page ----------------------------------------------------------------------------------
    Mutant(
        "a rule for parts hits a request that has none of them",
        "broker/calls/faults.py",
        "if (rule.selection.has_places and not picked) or not rule.fires():",
        "if not rule.fires():",
        ("tests/unit/broker/calls", "tests/unit/broker/embedding"),
    ),
    Mutant(
        "requests that a rule lets pass at first are not counted",
        "broker/calls/faults.py",
        "if self.matched_count <= self.after or self.left_count == 0:",
        "if self.matched_count < self.after or self.left_count == 0:",
        ("tests/unit/broker/calls", "tests/unit/broker/embedding"),
    ),
    Mutant(
        "what was dropped from the list of requests is not said",
        "broker/calls/request_log.py",
        "number + 1 < first",
        "number + 1 < 0",
        ("tests/unit/broker/calls", "tests/unit/broker/embedding"),
    ),
    Mutant(
        "a form of another site may change what a page shows",
        "broker/window/guarding.py",
        "if len(origins) > 1 or (is_change and not origins):",
        "if len(origins) > 1:",
        ("tests/unit/broker/window",),
    ),
    # -- settings ------------------------------------------------------------------------------------------------------
    Mutant(
        "a DENY for a shorter prefix is not inherited",
        "broker/settings/acls.py",
        "for name in sorted(texts):  # the shorter ones come first",
        "for name in sorted(texts, reverse=True):",
        ("tests/unit/broker/settings",),
    ),
    Mutant(
        "a right on all names of a resource is not looked at",
        "broker/settings/acls.py",
        "masks |= self._masks.get((resource_type, LITERAL, WILDCARD), _NO_RIGHTS)",
        "pass",
        ("tests/unit/broker/settings",),
    ),
    Mutant(
        "the quota of a default user goes before that of a user",
        "broker/settings/quotas.py",
        "for owner in (user, None):",
        "for owner in (None, user):",
        ("tests/unit/broker/server/test_throttling.py",),
    ),
    Mutant(
        "a token logs in where tokens are switched off",
        "broker/settings/tokens.py",
        "self._find_image().tokens.get(token_id) if self.config.is_enabled else None",
        "self._find_image().tokens.get(token_id)",
        ("tests/unit/broker/handlers/test_tokens.py",),
    ),
    Mutant(
        "an address without a quota of its own has none",
        "broker/settings/quotas.py",
        "return self._of_addresses.get(_address(host), self._of_addresses.get(None))",
        "return self._of_addresses.get(_address(host))",
        ("tests/unit/broker/server/test_connection_rates.py",),
    ),
    # -- security, metadata, backoff -----------------------------------------------------------------------------------
    Mutant(
        "a token is used until its end",
        "security/token_cache.py",
        "self._refresh_at_s = fetched_at_s + token.lifetime_s * REFRESH_SHARE",
        "self._refresh_at_s = fetched_at_s + token.lifetime_s",
        ("tests/unit/security",),
    ),
    Mutant(
        "a token that a broker refused is used again",
        "security/token_cache.py",
        "if self._kept == token:\n            self._kept = None",
        "if self._kept == token:\n            pass",
        ("tests/unit/security",),
    ),
    Mutant(
        "topics of a failed partial refresh are forgotten",
        "metadata/cluster_metadata.py",
        "self._wanted.update((topic, None) for topic in query.topics if topic in self._followed)",
        "pass",
        ("tests/unit/metadata",),
    ),
    Mutant(
        "a topic that is in use is forgotten when it is idle for the second time",
        "metadata/cluster_metadata.py",
        "                self._followed[topic] = now_ms\n            else:",
        "                pass\n            else:",
        ("tests/unit/metadata",),
    ),
    Mutant(
        "a delay with jitter is longer than the longest one",
        "retry.py",
        "return min(round(delay * spread), self.max_ms)",
        "return round(delay * spread)",
        ("tests/unit/test_retry.py",),
    ),
    # -- metrics, tables, admin, compat --------------------------------------------------------------------------------
    Mutant(
        "the sum of a histogram is in microseconds",
        "metrics/prometheus.py",
        "histogram.total / 1e6)",
        "histogram.total)",
        ("tests/unit/metrics",),
    ),
    Mutant(
        "a batch's rows in a table begin at 0",
        "tables/plan.py",
        "return range(rows.start + first, rows.stop + first) if isinstance(rows, range) else rows + first",
        "return rows if isinstance(rows, range) else rows + first",
        ("tests/property/test_tables.py",),
    ),
    Mutant(
        "a partition without a leader is no finding",
        "admin/checkup.py",
        "leaderless = [p.number for p in topic.partitions if p.leader < 0]",
        "leaderless = [p.number for p in topic.partitions if p.leader < -1]",
        ("tests/unit/admin",),
    ),
    Mutant(
        "a new producer id is asked for once",
        "admin/producer_ids.py",
        "if not (answer.error_code and describe(answer.error_code).retriable):",
        "if True:",
        ("tests/unit/admin",),
    ),
    Mutant(
        "an errback that is added behind the error is not run",
        "compat/kafka_python/future.py",
        "            self._run(callback, errback)\n        return self",
        "            self._run(callback, None)\n        return self",
        ("tests/unit/compat/test_kafka_python_future.py",),
    ),
]
