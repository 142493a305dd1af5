"""A broadcast dictionary over plain records, which wait until it is whole; then a rolling count of the results."""

# mypy: ignore-errors
import random
import sys

from yarrow.common import Types
from yarrow.datastream import BroadcastProcessFunction, StreamExecutionEnvironment
from yarrow.datastream.state import MapStateDescriptor

DICTIONARY = MapStateDescriptor("dictionary", Types.STRING(), Types.STRING())
ENTRIES = [(f"word{number}", f"wort{number % 7}") for number in range(30)]


class Translated(BroadcastProcessFunction):
    def open(self, runtime_context):
        self.known = 0
        self.waiting = []

    def process_element(self, value, ctx):
        if self.known < len(ENTRIES):
            self.waiting.append(value)
        else:
            yield ctx.get_broadcast_state(DICTIONARY).get(value), 1

    def process_broadcast_element(self, value, ctx):
        dictionary = ctx.get_broadcast_state(DICTIONARY)
        dictionary.put(*value)
        self.known += 1
        if self.known == len(ENTRIES):
            for word in self.waiting:
                yield dictionary.get(word), 1
            self.waiting = []


if __name__ == "__main__":
    chosen = random.Random(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    env = StreamExecutionEnvironment.get_execution_environment()
    words = env.from_collection([chosen.choice(ENTRIES)[0] for _ in range(500)], Types.STRING())
    entries = env.from_collection(ENTRIES, Types.TUPLE([Types.STRING(), Types.STRING()]))
    pair = Types.TUPLE([Types.STRING(), Types.INT()])
    translated = words.rebalance().connect(entries.broadcast(DICTIONARY)).process(Translated(), pair)
    translated.key_by(lambda pair: pair[0], Types.STRING()).sum(1).print()
    env.execute("translated")
