"""The benchmarks: a runner, the cases, and the programs they are compared with."""
