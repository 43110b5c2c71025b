#pragma once

// Marks a function that kernels of the CUDA twin call as well and that cannot be constexpr. What is constexpr needs no
// mark.
#ifdef __CUDACC__
#define STRATA_HOST_DEVICE __host__ __device__
#else
#define STRATA_HOST_DEVICE
#endif
