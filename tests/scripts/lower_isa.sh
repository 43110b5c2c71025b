#!/usr/bin/env bash
# Runs a test program with the kernels of AVX2, if this processor has a higher instruction set.
#   tests/scripts/lower_isa.sh PROGRAM
grep -qw avx512vl /proc/cpuinfo || { echo "Skipped: this processor has no higher instruction set than AVX2" && exit 77; }
STRATA_CPU_ISA=avx2 exec "$1"
