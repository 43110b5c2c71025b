#pragma once
// CUDA's language and run-time library as the kernels of device/cuda/ops use them, for a C++ compiler: the same .cu
// files run block by block on the CPU (block.h says how, and what it finds). First in the include path of
// device_emulated_test, which is every test of tests/device/ops/ with lanes of Kind::cuda.
//
// To test a new operation: write device/cuda/ops/X.cu, then
//   ninja device_emulated_test && tests/device_emulated_test --gtest_filter='X*'
// A name of CUDA's that is not declared here is added here. What has no counterpart in C++ (inline PTX) belongs into a
// small header of device/cuda/ that a header of the same path in this folder replaces, as dynamic_shared.cuh.
// A block that waits for another block is not emulated: it would wait forever.
#include <bit>
#include <climits>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <source_location>

#define __global__
#define __device__
#define __host__
#define __constant__
#define __grid_constant__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
// Objects compiled from .cu files have no other variables. shared_memory.ld combines these into one region.
#define __shared__ static

// Vector types.
struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
#define STRATA_VECTOR(type, base)                                           \
  struct __align__(2 * sizeof(base)) type##2 {                              \
    base x, y;                                                              \
  };                                                                        \
  struct __align__(4 * sizeof(base) < 16 ? 4 * sizeof(base) : 16) type##4 { \
    base x, y, z, w;                                                        \
  };                                                                        \
  constexpr type##2 make_##type##2(base x, base y) {                        \
    return {x, y};                                                          \
  }                                                                         \
  constexpr type##4 make_##type##4(base x, base y, base z, base w) {        \
    return {x, y, z, w};                                                    \
  }
STRATA_VECTOR(float, float)
STRATA_VECTOR(double, double)
STRATA_VECTOR(int, int)
STRATA_VECTOR(uint, unsigned)
STRATA_VECTOR(ushort, unsigned short)
#undef STRATA_VECTOR

// The running thread's indices. One kernel runs at a time.
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
inline constexpr int warpSize = 32;

// Barriers and exchanges.
namespace strata::device::emulation {

enum class WarpOp {
  sync,
  shuffle,
  ballot,
  add,
  min_signed,
  min_unsigned,
  max_signed,
  max_unsigned,
  bit_and,
  bit_or,
  bit_xor
};

void sync_block(std::source_location);
// The result of `op` for the calling lane, once every lane of `mask` has called it with this mask from this line.
std::uint64_t exchange(unsigned mask, WarpOp op, std::uint64_t value, unsigned from, std::source_location);
unsigned lane_index();

template <typename T>
T shuffle(unsigned mask, T value, unsigned from, std::source_location where) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t) && std::is_trivially_copyable_v<T>);
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = exchange(mask, WarpOp::shuffle, bits, from, where);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

}  // namespace strata::device::emulation

inline void __syncthreads(std::source_location where = std::source_location::current()) {
  strata::device::emulation::sync_block(where);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, std::source_location where = std::source_location::current()) {
  strata::device::emulation::exchange(mask, strata::device::emulation::WarpOp::sync, 0, 0, where);
}
template <typename T>
T __shfl_sync(unsigned mask, T value, int from, int width = 32,
              std::source_location where = std::source_location::current()) {
  const unsigned lane = strata::device::emulation::lane_index(), segment = static_cast<unsigned>(width) - 1;
  return strata::device::emulation::shuffle(mask, value, (lane & ~segment) | (static_cast<unsigned>(from) & segment),
                                            where);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32,
                  std::source_location where = std::source_location::current()) {
  const unsigned lane = strata::device::emulation::lane_index(), from = lane ^ static_cast<unsigned>(lanes);
  return strata::device::emulation::shuffle(mask, value,
                                            from <= (lane | static_cast<unsigned>(width - 1)) ? from : lane, where);
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   std::source_location where = std::source_location::current()) {
  const unsigned lane = strata::device::emulation::lane_index(), from = lane + delta;
  return strata::device::emulation::shuffle(mask, value,
                                            from <= (lane | static_cast<unsigned>(width - 1)) ? from : lane, where);
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 std::source_location where = std::source_location::current()) {
  const unsigned lane = strata::device::emulation::lane_index(), first = lane & ~static_cast<unsigned>(width - 1);
  return strata::device::emulation::shuffle(mask, value, lane >= first + delta ? lane - delta : lane, where);
}
inline unsigned __ballot_sync(unsigned mask, int predicate,
                              std::source_location where = std::source_location::current()) {
  using strata::device::emulation::WarpOp;
  return static_cast<unsigned>(strata::device::emulation::exchange(mask, WarpOp::ballot, predicate != 0, 0, where));
}
inline int __any_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return __ballot_sync(mask, predicate, where) != 0;
}
inline int __all_sync(unsigned mask, int predicate, std::source_location where = std::source_location::current()) {
  return __ballot_sync(mask, predicate, where) == mask;
}
#define STRATA_WARP_REDUCTION(name, type, op)                                                                 \
  inline type name(unsigned mask, type value, std::source_location where = std::source_location::current()) { \
    using strata::device::emulation::WarpOp;                                                                  \
    return static_cast<type>(                                                                                 \
        strata::device::emulation::exchange(mask, WarpOp::op, static_cast<std::uint32_t>(value), 0, where));  \
  }
STRATA_WARP_REDUCTION(__reduce_add_sync, unsigned, add)
STRATA_WARP_REDUCTION(__reduce_add_sync, int, add)
STRATA_WARP_REDUCTION(__reduce_min_sync, unsigned, min_unsigned)
STRATA_WARP_REDUCTION(__reduce_min_sync, int, min_signed)
STRATA_WARP_REDUCTION(__reduce_max_sync, unsigned, max_unsigned)
STRATA_WARP_REDUCTION(__reduce_max_sync, int, max_signed)
STRATA_WARP_REDUCTION(__reduce_and_sync, unsigned, bit_and)
STRATA_WARP_REDUCTION(__reduce_or_sync, unsigned, bit_or)
STRATA_WARP_REDUCTION(__reduce_xor_sync, unsigned, bit_xor)
#undef STRATA_WARP_REDUCTION

// Memory.
template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
void __stcs(T* to, T value) {
  *to = value;
}
template <typename T>
void __stwb(T* to, T value) {
  *to = value;
}
template <typename T>
void __stcg(T* to, T value) {
  *to = value;
}
inline void __threadfence() {}
inline void __threadfence_block() {}
[[noreturn]] void __trap();

// Only for integers: results of floating-point atomics depend on the order of threads.
#define STRATA_ATOMICS(type)                                                                                  \
  inline type atomicAdd(type* at, type x) {                                                                   \
    return __atomic_fetch_add(at, x, __ATOMIC_RELAXED);                                                       \
  }                                                                                                           \
  inline type atomicOr(type* at, type x) {                                                                    \
    return __atomic_fetch_or(at, x, __ATOMIC_RELAXED);                                                        \
  }                                                                                                           \
  inline type atomicAnd(type* at, type x) {                                                                   \
    return __atomic_fetch_and(at, x, __ATOMIC_RELAXED);                                                       \
  }                                                                                                           \
  inline type atomicExch(type* at, type x) {                                                                  \
    return __atomic_exchange_n(at, x, __ATOMIC_RELAXED);                                                      \
  }                                                                                                           \
  inline type atomicCAS(type* at, type expected, type x) {                                                    \
    __atomic_compare_exchange_n(at, &expected, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);                 \
    return expected;                                                                                          \
  }                                                                                                           \
  inline type atomicMax(type* at, type x) {                                                                   \
    type seen = *at;                                                                                          \
    while (seen < x && !__atomic_compare_exchange_n(at, &seen, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
      ;                                                                                                       \
    return seen;                                                                                              \
  }                                                                                                           \
  inline type atomicMin(type* at, type x) {                                                                   \
    type seen = *at;                                                                                          \
    while (seen > x && !__atomic_compare_exchange_n(at, &seen, x, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) \
      ;                                                                                                       \
    return seen;                                                                                              \
  }
STRATA_ATOMICS(int)
STRATA_ATOMICS(unsigned)
STRATA_ATOMICS(unsigned long long)
#undef STRATA_ATOMICS

// Arithmetic.
inline float __fmaf_rn(float a, float b, float c) {
  return std::fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b) {
  return a + b;
}
inline float __fsub_rn(float a, float b) {
  return a - b;
}
inline float __fmul_rn(float a, float b) {
  return a * b;
}
inline float __fdiv_rn(float a, float b) {
  return a / b;
}
inline float __frcp_rn(float a) {
  return 1.0f / a;
}
inline float __fsqrt_rn(float a) {
  return std::sqrt(a);
}
inline double __fma_rn(double a, double b, double c) {
  return std::fma(a, b, c);
}
inline double __dadd_rn(double a, double b) {
  return a + b;
}
inline double __dsub_rn(double a, double b) {
  return a - b;
}
inline double __dmul_rn(double a, double b) {
  return a * b;
}
inline double __ddiv_rn(double a, double b) {
  return a / b;
}
inline double __dsqrt_rn(double a) {
  return std::sqrt(a);
}
inline float __fdividef(float a, float b) {
  return a / b;
}
inline float rsqrtf(float a) {
  return 1.0f / std::sqrt(a);
}
inline float __saturatef(float a) {
  return std::fmin(std::fmax(a, 0.0f), 1.0f);
}
// The C library declares functions of these names.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __exp2f(x) exp2f(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)

inline unsigned __float_as_uint(float x) {
  return std::bit_cast<unsigned>(x);
}
inline int __float_as_int(float x) {
  return std::bit_cast<int>(x);
}
inline float __uint_as_float(unsigned x) {
  return std::bit_cast<float>(x);
}
inline float __int_as_float(int x) {
  return std::bit_cast<float>(x);
}
inline long long __double_as_longlong(double x) {
  return std::bit_cast<long long>(x);
}
inline double __longlong_as_double(long long x) {
  return std::bit_cast<double>(x);
}
inline int __float2int_rn(float x) {
  return static_cast<int>(std::nearbyint(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}
inline int __popc(unsigned x) {
  return std::popcount(x);
}
inline int __popcll(unsigned long long x) {
  return std::popcount(x);
}
inline int __clz(int x) {
  return std::countl_zero(static_cast<unsigned>(x));
}
inline int __clzll(long long x) {
  return std::countl_zero(static_cast<unsigned long long>(x));
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
template <typename T>
constexpr T min(T a, T b) {
  return b < a ? b : a;
}
template <typename T>
constexpr T max(T a, T b) {
  return a < b ? b : a;
}

// The run-time library, as device/cuda/launch.h calls it: a stream is the queue of an emulated lane.
enum cudaError_t { cudaSuccess, cudaErrorInvalidValue, cudaErrorMemoryAllocation, cudaErrorInvalidConfiguration };
enum cudaMemcpyKind { cudaMemcpyDefault };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };

struct CUstream_st;
using cudaStream_t = CUstream_st*;

struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  std::size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace strata::device::emulation {
// Queues the kernel with its arguments bound; refuses what a GPU would.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);
}  // namespace strata::device::emulation

template <typename... Parameters, typename... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...), Args&&... args) {
  static_assert((std::is_trivially_copyable_v<Parameters> && ...), "a kernel's parameters are copied as bytes");
  return strata::device::emulation::launch(*config, reinterpret_cast<const void*>(kernel),
                                           [kernel, ... bound = static_cast<Parameters>(args)] { kernel(bound...); });
}
cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value);
template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream);
