"""`yarrow replay-dead-letters`: feeds dead letters to the operators of a repaired program."""
