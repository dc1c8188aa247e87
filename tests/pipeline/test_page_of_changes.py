"""What lies beside Spark's checkpoint (``how-to/changing-a-pipeline.md``): which test proves which field."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/how-to/changing-a-pipeline.md").read_text()
COLUMNS = ("older", "newer", "missing", "another's")

OUTLIVING, AGAIN = "pipeline/test_outliving.py", "pipeline/checking/test_again.py"
BINDINGS = "pipeline/checkpoints/test_bindings.py"
STATUS, RECORDER = "pipeline/status/test_status.py", "pipeline/status/test_recorder.py"
FINGERPRINTS, PUBLISHING = (
    "pipeline/checkpoints/test_fingerprints.py",
    "pipeline/status/test_publishing.py",
)
PROGRESS, FENCED, KEYED = (
    f"spark/{e}.py" for e in ("batches/test_progress", "sink/test_fenced", "sink/test_keyed")
)
IN_SPARK, PIPELINES = "spark/sink/test_in_spark.py", "spark/test_pipelines.py"
CHECKPOINTS, LEASE = "pipeline/checkpoints/test_checkpoint.py", "locks/test_in_virtual_time.py"

PROOFS = {
    "results of a file sink": (
        [(BINDINGS, "results_that_are_missing_or_older_are_refused_and_told_how_to_go_on")],
        [(BINDINGS, "results_that_are_newer_than_their_checkpoint_are_refused")],
        [(BINDINGS, "results_that_are_missing_or_older_are_refused_and_told_how_to_go_on")],
        [
            (BINDINGS, "results_of_another_query_with_the_same_number_are_refused"),
            (PIPELINES, "results_are_never_written_by_a_query_with_another_checkpoint"),
        ],
    ),
    "checkpoint of a file sink": (
        [(BINDINGS, "one_batch_more_than_finished_is_no_kill_where_it_was_not_planned")],
        [(BINDINGS, "results_that_are_missing_or_older_are_refused_and_told_how_to_go_on")],
        [(BINDINGS, "a_deleted_checkpoint_is_refused_and_reset_leads_to_a_folder_of_its_own")],
        [(OUTLIVING, "a_checkpoint_that_was_copied_does_not_write_to_the_results_of_its_model")],
    ),
    "checkpoint of a sink that keeps no record": (
        [(AGAIN, "a_checkpoint_that_is_an_older_copy_is_noticed")],
        [(AGAIN, "a_checkpoint_that_is_newer_than_durable_and_sums_is_not_asked")],
        [
            (AGAIN, "a_checkpoint_that_is_gone_is_noticed_by_the_durable_and_asked_for"),
            (AGAIN, "a_checkpoint_that_is_gone_is_noticed_by_the_sums"),
            (
                "spark/test_pipeline_again.py",
                "rows_are_written_again_after_a_lost_checkpoint_only_when_that_is_asked_for",
            ),
        ],
        [(PIPELINES, "sources_that_changed_places_or_streams_are_refused_with_their_cause")],
    ),
    "durable of a source": (
        [(PROGRESS, "a_durable_that_is_older_is_moved_to_where_the_query_is")],
        [(AGAIN, "a_checkpoint_that_is_an_older_copy_is_noticed")],
        [(PROGRESS, "a_durable_deleted_under_a_query_is_made_again_at_once")],
        [
            (PROGRESS, "somebody_else_s_durable_is_not_touched"),
            (PROGRESS, "a_durable_has_one_owner_and_the_query_that_lost_it_is_told"),
        ],
    ),
    "what the query was": (
        [(FINGERPRINTS, "validate_says_what_has_changed_since_a_query_ran")],
        [(FINGERPRINTS, "validate_says_what_has_changed_since_a_query_ran")],
        [
            (
                FINGERPRINTS,
                "a_note_that_is_missing_or_older_and_one_that_came_with_another_s_checkpoint",
            )
        ],
        [
            (
                FINGERPRINTS,
                "a_note_that_is_missing_or_older_and_one_that_came_with_another_s_checkpoint",
            )
        ],
    ),
    "`0001.totals.json`": (
        [(OUTLIVING, "sums_that_are_older_or_missing_are_told_as_such")],
        [(OUTLIVING, "sums_that_are_newer_count_nothing_twice")],
        [(OUTLIVING, "sums_that_are_older_or_missing_are_told_as_such")],
        [(OUTLIVING, "sums_of_a_lost_checkpoint_are_replaced_by_the_first_batch")],
    ),
    "`0002.start.json`": (
        [],
        [],
        [(OUTLIVING, "a_start_that_is_missing_leaves_a_generation_that_has_begun_as_it_is")],
        [(OUTLIVING, "a_start_of_a_source_that_is_not_read_any_more_is_refused")],
    ),
    "`numbers.json`": (
        [(OUTLIVING, "a_ledger_of_numbers_that_is_older_or_another_s_gives_none_again")],
        [
            (
                OUTLIVING,
                "a_ledger_of_numbers_that_is_newer_than_the_checkpoint_goes_on_behind_all_it_gave",
            )
        ],
        [("pipeline/checkpoints/test_numbers.py", "a_ledger_that_was_lost_gives_no_number_again")],
        [(OUTLIVING, "a_ledger_of_numbers_that_is_older_or_another_s_gives_none_again")],
    ),
    "`runner.json`": (
        [(RECORDER, "a_runner_that_was_killed_is_told_from_one_that_runs_and_one_that_ended")],
        [],
        [(OUTLIVING, "notes_of_a_runner_that_are_missing_or_of_other_queries_tell_no_state")],
        [(OUTLIVING, "notes_of_a_runner_that_are_missing_or_of_other_queries_tell_no_state")],
    ),
    "`0001.aside.jsonl`, `0001.losses.jsonl`": (
        [
            (OUTLIVING, "what_was_set_aside_is_told_as_far_as_its_file_goes"),
            (OUTLIVING, "losses_that_are_missing_or_damaged_leave_the_status"),
        ],
        [],
        [
            (OUTLIVING, "what_was_set_aside_is_told_as_far_as_its_file_goes"),
            (OUTLIVING, "losses_that_are_missing_or_damaged_leave_the_status"),
        ],
        [],
    ),
    "`0001.skipped.jsonl`": (
        [
            (
                OUTLIVING,
                "messages_whose_line_was_lost_are_put_aside_again_and_no_other_checkpoint_s_are_left_out",
            ),
            (
                "pipeline/failures/test_poison.py",
                "all_bad_messages_of_a_batch_are_put_aside_in_order",
            ),
        ],
        [],
        [
            (
                OUTLIVING,
                "messages_whose_line_was_lost_are_put_aside_again_and_no_other_checkpoint_s_are_left_out",
            )
        ],
        [
            (
                OUTLIVING,
                "messages_whose_line_was_lost_are_put_aside_again_and_no_other_checkpoint_s_are_left_out",
            )
        ],
    ),
    "markers of a sink that writes exactly once": (
        [(FENCED, "a_writer_of_an_earlier_batch_is_refused")],
        [(FENCED, "a_writer_of_an_earlier_batch_is_refused")],
        [(FENCED, "markers_that_limits_removed_are_begun_again")],
        [
            (FENCED, "a_writer_of_an_earlier_batch_is_refused"),
            (IN_SPARK, "a_query_writes_each_row_once_and_goes_on_from_its_checkpoint"),
        ],
    ),
    "versions in the values of a sink with `key`": (
        [(KEYED, "the_last_row_of_each_key_is_stored_and_no_other")],
        [(KEYED, "a_writer_that_was_given_up_stores_nothing_over_its_successors")],
        [
            (
                KEYED,
                "another_sink_goes_over_what_was_stored_before_it_began_and_not_over_what_came_since",
            )
        ],
        [
            (
                KEYED,
                "another_sink_goes_over_what_was_stored_before_it_began_and_not_over_what_came_since",
            )
        ],
    ),
    "what a run told a server": (
        [
            (
                "console/test_pipelines.py",
                "pipelines_are_shown_with_what_they_told_and_silence_is_said",
            )
        ],
        [],
        [(PUBLISHING, "a_pipeline_that_names_no_server_tells_none_and_a_standby_says_nothing")],
        [(PUBLISHING, "a_server_is_told_how_a_run_is_and_when_it_has_ended")],
    ),
    "`running.lock`": (
        [(OUTLIVING, "a_lock_that_a_dead_process_left_is_none")],
        [],
        [(CHECKPOINTS, "only_one_process_runs_a_pipeline")],
        [(CHECKPOINTS, "only_one_process_runs_a_pipeline")],
    ),
    "the lease": (
        [],
        [],
        [(LEASE, "one_of_two_is_active_and_stays_so")],
        [
            (LEASE, "one_of_two_is_active_and_stays_so"),
            (
                "pipeline/test_lease.py",
                "a_runner_that_loses_the_lease_ends_its_queries_at_once_and_stands_by_again",
            ),
        ],
    ),
}
"""By the words with which a line of the table begins, and then by its columns."""


def lines() -> dict[str, list[str]]:
    section = PAGE.partition("## What lies beside Spark's checkpoint")[2]
    rows = [line.strip("| \n").split(" | ") for line in section.splitlines() if line[:2] == "| "]
    assert [each.strip() for each in rows[0]] == list(COLUMNS)
    return {row[0]: row[1:] for row in rows[2:]}


def test_every_field_of_the_table_is_proved_and_nothing_else_is() -> None:
    found = lines()
    assert len(found) == len(PROOFS)
    for name, fields in found.items():
        (proofs,) = [each for begin, each in PROOFS.items() if name.startswith(begin)]
        for column, field, tests in zip(COLUMNS, fields, proofs, strict=True):
            assert bool(tests) == (field != "–"), f"{name}, {column}: {field}"


@pytest.mark.parametrize("name", PROOFS)
def test_the_tests_that_are_named_are_there(name: str) -> None:
    for file, test in {each for column in PROOFS[name] for each in column}:
        text = (TESTS / file).read_text()
        assert re.search(rf"(?m)^(?:async )?def test_{test}\(", text), f"{file}: {test}"
