"""Event time: watermarks and timers."""

from __future__ import annotations

from bench.mutation.mutant import Mutant

MUTANTS = (
    Mutant(
        "IngestionTime.timed",
        "max(self._last, self._clock.epoch_ms())",
        "min(self._last, self._clock.epoch_ms())",
        killer="test_source_watermarks.py::test_ingestion_time_stamps_with_the_clock_and_its_watermark_follows",
    ),
    Mutant(
        "OperatorTime.forward",
        "if watermark <= self.watermark:",
        "if False:",
        equivalent="The tracker or valve before it hands on what has risen only.",
    ),
    Mutant(
        "SplitWatermarks._counted",
        "if self._splits and not self._unnamed:",
        "if False:",
        killer="test_source_watermarks.py::test_record_batches_have_the_timestamps_of_their_reader",
    ),
    Mutant(
        "SplitWatermarks._hand_on",
        "min(tracker.watermark for tracker in active)",
        "max(tracker.watermark for tracker in active)",
        killer="test_source_watermarks.py::test_the_watermark_is_the_minimum_over_the_splits",
    ),
    Mutant(
        "SplitWatermarks._note_timestamps",
        "[stamp for stamp in stamps if stamp is not None] if stamps.count(None) else stamps",
        "stamps[:1] if stamps.count(None) else stamps",
        killer="test_source_watermarks.py::test_records_without_timestamp_make_no_watermark",
    ),
    Mutant(
        "SplitWatermarks.timed",
        "if not isinstance(rows, Sequence):",
        "if False:",
        killer="test_source_watermarks.py::test_record_batches_have_the_timestamps_of_their_reader",
    ),
    Mutant(
        "TimerQueue._changing",
        "if timestamp not in self._frozen:",
        "if False:",
        killer="test_timer_queue.py::test_namespaces_tell_timers_apart",
    ),
    Mutant(
        "TimerQueue._discard",
        "elif bucket is not entry and bucket != entry:",
        "elif False:",
        killer="test_timer_queue.py::test_any_use_goes_as_the_model_says_restored_or_not",
    ),
    Mutant(
        "TimerQueue._discard",
        "if len(bucket) > 1:",
        "if False:",
        killer="test_timer_queue.py::test_namespaces_tell_timers_apart",
    ),
    Mutant(
        "TimerQueue.pop",
        "if timestamp is None or timestamp > limit:",
        "if False:",
        killer="test_timer_queue.py::test_the_limit_holds_timers_back",
    ),
    Mutant(
        "TimerQueue.pop",
        "timestamp > limit",
        "timestamp >= limit",
        killer="test_timer_queue.py::test_the_limit_holds_timers_back",
    ),
    Mutant(
        "TimerQueue.register",
        "elif bucket is entry or bucket == entry:",
        "elif False:",
        killer="test_timer_queue.py::test_a_timer_is_there_once_however_often_it_is_registered",
    ),
    Mutant(
        "TimerQueue.register",
        "if entry in bucket:",
        "if False:",
        killer="test_timer_queue.py::test_a_timer_is_there_once_however_often_it_is_registered",
    ),
    Mutant(
        "WatermarkTracker.emit_watermark",
        "if type(watermark) is not int or not MIN_TIMESTAMP <= watermark <= MAX_TIMESTAMP:",
        "if False:",
        killer="test_timestamps_and_watermarks.py::test_a_generator_that_emits_no_timestamp_is_named",
    ),
    Mutant(
        "WatermarkTracker.on_events",
        "max(map(self._believed, timestamps))",
        "min(map(self._believed, timestamps))",
        killer="test_source_watermarks.py::test_late_records_and_bounded_jumps_are_counted_of_ended_splits_too",
    ),
    Mutant(
        "WatermarkTracker.on_events",
        "max(timestamps)",
        "min(timestamps)",
        killer="test_source_watermarks.py::test_record_batches_have_the_timestamps_of_their_reader",
    ),
    Mutant(
        "WatermarkTracker.on_events",
        "min(timestamps)",
        "max(timestamps)",
        killer="test_source_watermarks.py::test_late_records_and_bounded_jumps_are_counted_of_ended_splits_too",
    ),
    Mutant(
        "check_timestamp",
        "if type(timestamp) is int and MIN_TIMESTAMP <= timestamp <= MAX_TIMESTAMP:",
        "if False:",
        killer="test_source_watermarks.py::test_timestamps_of_a_reader_are_checked_without_a_strategy",
    ),
    Mutant(
        "check_timestamps",
        "if kinds == {type(None)} or not timestamps:",
        "if False:",
        killer="test_source_watermarks.py::test_timestamps_of_a_reader_are_checked_without_a_strategy",
    ),
    Mutant(
        "check_timestamps",
        "max(numbers)",
        "min(numbers)",
        killer="test_source_watermarks.py::test_timestamps_of_a_reader_are_checked_without_a_strategy",
    ),
    Mutant(
        "check_timestamps",
        "min(numbers)",
        "max(numbers)",
        killer="test_source_watermarks.py::test_timestamps_of_a_reader_are_checked_without_a_strategy",
    ),
)
