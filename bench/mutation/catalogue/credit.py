"""Credit and channels: what may be sent, what waits, and in which order."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "Connection._advance",
        "if sent < len(head):",
        "if False:",
        killer="test_refused_connections.py::test_a_host_that_has_gone_without_a_word_is_noticed_from_either_end",
    ),
    Mutant(
        "Connection._parse",
        "end > available",
        "end >= available",
        killer="test_refused_connections.py::test_a_wrong_secret_is_refused_by_the_server",
    ),
    Mutant(
        "Connection._shake_hands",
        "elif isinstance(handshake, ServerHandshake) and header.type is FrameType.HELLO:",
        "elif False:",
        killer="test_refused_connections.py::test_a_wrong_secret_is_refused_by_the_server",
    ),
    Mutant(
        "Connection._write_some",
        "min(len(outgoing), _MAX_PARTS)",
        "max(len(outgoing), _MAX_PARTS)",
        killer="test_refused_connections.py::test_a_wrong_secret_is_refused_by_the_server",
    ),
    Mutant(
        "Connection.send",
        "if self.closed:",
        "if False:",
        equivalent="Bytes queued on a closed connection are never written: the socket is gone.",
    ),
    Mutant(
        "Credit.is_left",
        "return self.sent_batches < self.granted_batches and self.sent_bytes < self.granted_bytes",
        "return True and self.sent_bytes < self.granted_bytes",
        killer="test_stalled_channels.py::test_a_wait_is_as_old_as_the_last_change",
    ),
    Mutant(
        "InputChannel.append",
        "if self.closed:",
        "if False:",
        killer="test_credit.py::test_a_closed_receiver_keeps_nothing",
    ),
    Mutant(
        "InputChannel.rows_follow",
        "if self.blocked or self.closed or not self._queue:",
        "if False:",
        killer="test_credit.py::test_what_can_be_taken_with_a_batch_is_the_batches_right_behind_it",
    ),
    Mutant(
        "InputChannel.take",
        "if isinstance(head, FrameHeader):",
        "if False:",
        killer="test_broken_wire.py::test_rows_that_disagree_with_their_header_fail_the_task_that_takes_them",
    ),
    Mutant(
        "InputGate.combined_watermark",
        "min(active)",
        "max(active)",
        killer="test_input_gate.py::test_the_end_of_one_input_does_not_make_late_what_an_idle_one_brings",
    ),
    Mutant(
        "InputGate.idle",
        "return bool(opened) and all(valve.idle for valve in opened)",
        "return bool(opened) and True",
        killer="test_input_gate.py::test_an_idle_channel_is_left_out_and_must_catch_up",
    ),
    Mutant(
        "InputGate.idle",
        "return bool(opened) and all(valve.idle for valve in opened)",
        "return True and all(valve.idle for valve in opened)",
        killer="test_input_gate.py::test_an_ended_channel_holds_nothing_back",
    ),
    Mutant(
        "InputGate.poll",
        "if entry.channel.has_data and not (holds and entry.held):",
        "if False:",
        killer="test_input_gate.py::test_channels_are_taken_in_turn",
    ),
    Mutant(
        "LocalOutputChannel._transmit",
        "max(1, estimated_bytes(batch.rows))",
        "min(1, estimated_bytes(batch.rows))",
        killer="test_credit.py::test_a_batch_over_the_window_travels_alone",
    ),
    Mutant(
        "OutputChannel._has_credit",
        "and self.sent_bytes < self._granted_bytes",
        "and True",
        killer="test_credit.py::test_credit_ends_by_bytes_as_well_as_by_batches",
    ),
    Mutant(
        "OutputChannel._has_credit",
        "return self.sent_batches < self._granted_batches and self.sent_bytes < self._granted_bytes",
        "return self.sent_batches < self._granted_batches and True",
        killer="test_credit.py::test_a_batch_over_the_window_travels_alone",
    ),
    Mutant(
        "OutputChannel._has_credit",
        "self.sent_batches < self._granted_batches",
        "self.sent_batches <= self._granted_batches",
        killer="test_credit.py::test_the_window_bounds_what_waits_and_everything_arrives_in_order",
    ),
    Mutant(
        "OutputChannel._position_of",
        "element.checkpoint_id == checkpoint_id",
        "element.checkpoint_id != checkpoint_id",
        killer="test_unaligned_barriers.py::test_a_waiting_barrier_is_found_by_its_checkpoint",
    ),
    Mutant(
        "OutputChannel.drain_overdraft",
        "if not self._has_credit():",
        "if False:",
        killer="test_partition.py::test_without_credit_batches_wait",
    ),
    Mutant(
        "OutputChannel.grant",
        "if batches > self._granted_batches:",
        "if True:",
        killer="test_credit.py::test_an_old_grant_takes_nothing_back",
    ),
    Mutant(
        "OutputChannel.grant",
        "if size > self._granted_bytes:",
        "if True:",
        killer="test_credit.py::test_an_old_grant_takes_nothing_back",
    ),
    Mutant(
        "ResultSpool.begin",
        "other.attempt != key.attempt",
        "other.attempt == key.attempt",
        killer="test_blocking_partition.py::test_a_new_attempt_has_the_budget_of_the_former",
    ),
    Mutant(
        "ResultSpool.begin",
        'other.attempt.rpartition("_")[0] == subtask',
        'other.attempt.rpartition("_")[0] != subtask',
        killer="test_blocking_partition.py::test_a_new_attempt_has_the_budget_of_the_former",
    ),
    Mutant(
        "ResultSpool.wrote",
        "if self._used + size > self._budget:",
        "if False:",
        killer="test_blocking_partition.py::test_past_its_budget_the_producer_fails",
    ),
    Mutant(
        "StalledChannels.look",
        "if self._bound <= 0:",
        "if False:",
        killer="test_stalled_channels.py::test_a_bound_of_zero_reports_nothing",
    ),
    Mutant(
        "StalledChannels.look",
        "if wait is None or not wait.is_stall(now, self._bound):",
        "if False:",
        killer="test_stalled_channels.py::test_a_channel_with_credit_or_with_a_dead_consumer_is_not_stalled",
    ),
    Mutant(
        "TaskOutputs.flush_if_due",
        "if not any(partition.has_buffered for partition in self.partitions):",
        "if False:",
        equivalent="Flushing empty buffers sends nothing; the test only saves the walk.",
    ),
    Mutant(
        "WatermarkValve._recompute",
        "max((c.watermark for c in opened), default=MIN_TIMESTAMP)",
        "min((c.watermark for c in opened), default=MIN_TIMESTAMP)",
        killer="test_input_gate.py::test_when_all_are_idle_the_largest_watermark_counts",
    ),
    Mutant(
        "WatermarkValve._recompute",
        "min(candidates, default=MIN_TIMESTAMP)",
        "max(candidates, default=MIN_TIMESTAMP)",
        killer="test_input_gate.py::test_the_watermark_is_the_smallest_of_the_channels",
    ),
    Mutant(
        "_Reader._frame",
        "if zlib.crc32(payload, zlib.crc32(head[: HEADER.size])) != expected:",
        "if False:",
        killer="test_blocking_partition.py::test_a_damaged_result_names_its_producer",
    ),
    Mutant(
        "_Reader.pump",
        "if self._done or not self.is_complete:",
        "if False:",
        killer="test_blocking_partition.py::test_a_damaged_result_names_its_producer",
    ),
    Mutant(
        "decode_header",
        "version != WIRE_VERSION",
        "version == WIRE_VERSION",
        killer="test_broken_wire.py::test_rows_that_disagree_with_their_header_fail_the_task_that_takes_them",
    ),
    Mutant(
        "next_wait",
        "if not holds_data or credit.is_left:",
        "if False:",
        killer="test_stalled_channels.py::test_a_wait_is_as_old_as_the_last_change",
    ),
)
