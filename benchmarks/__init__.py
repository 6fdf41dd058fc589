"""nimbusq and its peers on the same workloads, in one interleaved run; see docs/benchmarks.md."""
