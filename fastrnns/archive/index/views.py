"""The tables that a query sees: names and columns people are promised, over the rows of the index. Pure.

docs/archive_at_scale.md describes them; a test holds the two together.
"""

from __future__ import annotations

KEYS = "id, kind, started, verdict, device, torch, machine, month, hardware_id, software_id"
PROBLEM = "seq_length, num_layers, input_size, hidden_size, mini_batch"


def _with_facts(rows: str, fact: str) -> str:
    """Rows that each have a digest, and beside them what it is the digest of, as JSON."""
    return f"""
        SELECT r.*, f.json::JSON AS facts
        FROM ({rows}) AS r JOIN (
            SELECT digest, any_value(json) AS json FROM indexed WHERE row = 'fact' AND fact = '{fact}' GROUP BY digest
        ) AS f USING (digest)"""


VIEWS = {
    "records": f"""
        SELECT {KEYS}, sequence, duration_s, exit_code, reasons, models, argv, {PROBLEM}, state_id, cpu, gpus,
            python, driver, kernel, "commit", dirty, setting, software, hardware, machine || '/' || name AS file
        FROM indexed WHERE row = 'record'""",
    "results": f"""
        SELECT {KEYS}, {PROBLEM}, model, model_group, dtype, status, error, backend, phase, median_ms, low_ms, high_ms,
            mean_ms, std_ms, min_ms, n, len(process_medians_ms) AS processes, process_medians_ms
        FROM indexed WHERE row = 'result'""",
    "processes": f"""
        SELECT {KEYS}, model, phase, unnest(range(len(process_medians_ms))) AS process,
            unnest(process_medians_ms) AS median_ms
        FROM indexed WHERE row = 'result' AND status = 'ok'""",
    "software": _with_facts(
        """SELECT software AS digest, any_value(software_id) AS software_id, any_value(torch) AS torch,
                any_value(python) AS python, any_value(driver) AS driver, any_value(kernel) AS kernel,
                any_value("commit") AS "commit", bool_or(dirty) AS dirty, count(*) AS records,
                min(started) AS first, max(started) AS last
            FROM indexed WHERE row = 'record' GROUP BY software""",
        "software",
    ),
    "machines": _with_facts(
        """SELECT machine, hardware_id, arg_max(hardware, started) AS digest, any_value(cpu) AS cpu,
                any_value(gpus) AS gpus, count(*) AS records, min(started) AS first, max(started) AS last
            FROM indexed WHERE row = 'record' GROUP BY machine, hardware_id""",
        "hardware",
    ),
    "settings": _with_facts(
        "SELECT setting AS digest, count(*) AS records FROM indexed WHERE row = 'record' GROUP BY setting",
        "setting",
    ),
    "damaged": """
        SELECT machine, month, machine || '/' || name AS file, problem FROM indexed WHERE row = 'damaged'""",
}
