"""CountWindows: count windows one behind the other, with reduce or aggregate: a counter and a value a key.

Owner: the task thread. There are no window objects, namespaces or timers. Generated code counts and folds rows in one
value table. A full window gives its result and leaves nothing. See docs/design/0042-sessions-and-counts.md.
"""

from __future__ import annotations

from typing import Any

from yarrow.common.typeinfo import Types
from yarrow.container.codegen.code_writer import CodeWriter
from yarrow.container.codegen.user_calls import generate_call
from yarrow.container.codegen.user_functions import load_function, method_of
from yarrow.container.operators.base import Emit, KeyReadingOperator, OperatorContext, declared_type
from yarrow.container.operators.registry import runs
from yarrow.container.operators.rows.key_selection import generate_key
from yarrow.container.operators.rows.row_functions import FunctionOperator
from yarrow.container.operators.window.key_folding import ExplainedCalls, generate_look
from yarrow.container.operators.window.stored_forms import COUNTS, require_form
from yarrow.container.operators.window.window_contents import contents_type
from yarrow.container.operators.window.window_folding import Combination
from yarrow.container.protocol.failure import OperatorFailure, short_record
from yarrow.container.state.folded_states import refuse_none
from yarrow.container.state.value_table import ValueTable
from yarrow.runtime.data.elements import MAX_TIMESTAMP
from yarrow.runtime.graph.window_spec import AllCountWindowOperator, CountWindowOperator, WindowKind


@runs(CountWindowOperator, AllCountWindowOperator)
class CountWindows(FunctionOperator, KeyReadingOperator):
    """Runs count windows of a keyed stream, or of a whole stream whose rows have one key."""

    stamps_rows = True

    def __init__(self, name: str, spec: CountWindowOperator) -> None:
        assert spec.combining is not None
        super().__init__(name, spec.combining, keyed=True)
        self._spec = spec

    def setup(self, context: OperatorContext) -> None:
        super().setup(context)
        require_form(COUNTS, context)
        self._selector = method_of(load_function(self._spec.key_selector, self.name), "get_key", self.name)
        kept = contents_type(declared_type(self._spec.kept_type), rows=False)
        self._table: ValueTable = context.state.value_table(COUNTS, Types.TUPLE([Types.LONG(), kept]))

    def generate_at(
        self, code: CodeWriter, value: str, timestamp: str | None, emit: Emit, is_head: bool
    ) -> None:
        table, combination = self._table, Combination.of(self._spec, self.function, self.context)
        key = generate_key(code, self._selector, value, table if is_head else None)
        if self.uses_current_key:
            code.line(f"{code.bind('state', self.context.state)}.current_key = {key}")
        calls = ExplainedCalls(code, self, key, value)
        count, kept = code.fresh("c"), code.fresh("a")
        entries = generate_look(
            code,
            table,
            key,
            first=lambda: code.line(f"{count}, {kept} = 0, None"),
            found=lambda found: code.line(f"{count}, {kept} = {found}"),
        ).entries
        code.line(f"{count} += 1")
        row = combination.generate_row(code, value)
        with calls.block():
            combination.generate_either(code, kept, row)
        with code.block(f"if {count} < {self._spec.size}:"):
            code.line(f"{entries}[{key}] = {count}, {combination.generate_kept(code, kept)}")
        with code.block("else:"):
            code.line(f"{code.bind('remove', table.remove)}({key})")
            with code.block(f"if {kept} is not None:"):
                if self._spec.kind is WindowKind.AGGREGATED:
                    get_result = method_of(self.function, "get_result", self.name)
                    with calls.block():
                        generate_call(code, "get_result", get_result, [kept], kept)
                emit(kept, code.bind("stamp", MAX_TIMESTAMP))

    def refuse_none(self, row: Any) -> Exception:
        """See Explains."""
        return refuse_none(self.name, COUNTS)

    def explain(self, row: Any, key: Any, error: Exception) -> Exception:
        """See Explains."""
        self.context.state.current_key = key
        window = f"a window of {self._spec.size} records"
        if self._spec.rescalable:
            window += f" of the key {short_record(key)}"
        return OperatorFailure(self.name, f"{short_record(row)} ({window})", error)
