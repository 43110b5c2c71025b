// The part of cuBLASLt that device/cuda/ calls, in plain loops and as documented: column-major matrices, a bias along
// the columns, the auxiliary output of GELU. It refuses the same arguments as the library, and is built as the
// library's file.
#include <cublasLt.h>

#include <cmath>
#include <cstring>
#include <map>
#include <vector>

#include "device/numeric/dtype.h"

namespace {

using strata::device::bf16;
using strata::device::fp16;
using strata::device::from_float;
using strata::device::to_float;

struct Layout {
  cudaDataType type;
  std::int64_t rows, columns, leading;
};
struct Description {
  std::map<int, std::uint64_t> attributes;
  std::uint64_t at(int attribute) const {
    const auto found = attributes.find(attribute);
    return found == attributes.end() ? 0 : found->second;
  }
};
struct Preference {
  std::map<int, std::uint64_t> attributes;
};
// The content of an "algorithm": its number, and the alignment for which it was chosen.
struct Algorithm {
  std::uint64_t magic, number, alignment, rest[5];
};
static_assert(sizeof(Algorithm) == sizeof(cublasLtMatmulAlgo_t));
constexpr std::uint64_t kMagic = 0x5472617461;

template <typename To, typename From>
To* as(From* p) {
  return reinterpret_cast<To*>(p);
}

const void* as_pointer(std::uint64_t value) {
  return reinterpret_cast<const void*>(value);
}

float read(const void* data, cudaDataType type, std::int64_t i) {
  if (type == CUDA_R_32F) return static_cast<const float*>(data)[i];
  return type == CUDA_R_16BF ? to_float(static_cast<const bf16*>(data)[i])
                             : to_float(static_cast<const fp16*>(data)[i]);
}
void store(void* data, cudaDataType type, std::int64_t i, float x) {
  if (type == CUDA_R_32F)
    static_cast<float*>(data)[i] = x;
  else if (type == CUDA_R_16BF)
    static_cast<bf16*>(data)[i] = from_float<bf16>(x);
  else
    static_cast<fp16*>(data)[i] = from_float<fp16>(x);
}
float gelu(float x) {
  return 0.5f * x * (1 + std::tanh(0.7978845608f * (x + 0.044715f * x * x * x)));
}

float gelu_slope(float x) {
  const float inner = 0.7978845608f * (x + 0.044715f * x * x * x), t = std::tanh(inner);
  return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.7978845608f * (1 + 3 * 0.044715f * x * x);
}

struct Call {
  Description description;
  Layout a, b, d;
  const void *A, *B, *C;
  void* D;
  float alpha, beta;

  void run() const {
    const bool first_transposed = description.at(CUBLASLT_MATMUL_DESC_TRANSA) == CUBLAS_OP_T;
    const bool second_transposed = description.at(CUBLASLT_MATMUL_DESC_TRANSB) == CUBLAS_OP_T;
    const std::int64_t depth = first_transposed ? a.rows : a.columns;
    const auto epilogue = description.at(CUBLASLT_MATMUL_DESC_EPILOGUE);
    const void* const bias = as_pointer(description.at(CUBLASLT_MATMUL_DESC_BIAS_POINTER));
    void* const aux = const_cast<void*>(as_pointer(description.at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)));
    const auto aux_leading = static_cast<std::int64_t>(description.at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD));
    for (std::int64_t j = 0; j < d.columns; ++j)
      for (std::int64_t i = 0; i < d.rows; ++i) {
        float sum = 0;
        for (std::int64_t p = 0; p < depth; ++p)
          sum += read(A, a.type, first_transposed ? p + i * a.leading : i + p * a.leading) *
                 read(B, b.type, second_transposed ? j + p * b.leading : p + j * b.leading);
        sum *= alpha;
        if (beta != 0) sum += beta * read(C, d.type, i + j * d.leading);
        if (epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS)
          sum += read(bias, d.type, i);
        if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
          store(aux, d.type, i + j * aux_leading, sum);
          sum = gelu(sum);
        }
        if (epilogue == CUBLASLT_EPILOGUE_DGELU) sum *= gelu_slope(read(aux, d.type, i + j * aux_leading));
        store(D, d.type, i + j * d.leading, sum);
      }
    void* const gradient = const_cast<void*>(bias);
    if (epilogue == CUBLASLT_EPILOGUE_BGRADA) sum_operand(A, a, !first_transposed, d.rows, depth, gradient);
    if (epilogue == CUBLASLT_EPILOGUE_BGRADB) sum_operand(B, b, second_transposed, d.columns, depth, gradient);
  }
  // The sums of an operand over the depth, for each of D's rows or columns.
  void sum_operand(const void* data, const Layout& at, bool depth_is_columns, std::int64_t count, std::int64_t depth,
                   void* out) const {
    for (std::int64_t i = 0; i < count; ++i) {
      float sum = 0;
      for (std::int64_t p = 0; p < depth; ++p)
        sum += read(data, at.type, depth_is_columns ? i + p * at.leading : p + i * at.leading);
      store(out, d.type, i, sum);
    }
  }
  static void run_and_delete(void* call) {
    static_cast<Call*>(call)->run();
    delete static_cast<Call*>(call);
  }
};

bool aligned(const void* p, std::uint64_t alignment) {
  return reinterpret_cast<std::uintptr_t>(p) % alignment == 0;
}

cublasStatus_t put(std::map<int, std::uint64_t>& attributes, int attribute, const void* value, std::size_t bytes) {
  std::uint64_t number = 0;
  if (bytes > sizeof number) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&number, value, bytes);
  attributes[attribute] = number;
  return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

extern "C" {

std::size_t cublasLtGetVersion() {
  return 130000;
}
const char* cublasLtGetStatusName(cublasStatus_t) {
  return "a status of the fake";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = as<cublasLtContext>(new int);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete as<int>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
  if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *out = as<cublasLtMatmulDescOpaque_t>(new Description);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t p) {
  delete as<Description>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t attribute,
                                              const void* value, std::size_t bytes) {
  return put(as<Description>(p)->attributes, attribute, value, bytes);
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                                          std::uint64_t columns, std::int64_t leading) {
  if (leading < static_cast<std::int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *out = as<cublasLtMatrixLayoutOpaque_t>(
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t p) {
  delete as<Layout>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* out) {
  *out = as<cublasLtMatmulPreferenceOpaque_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p) {
  delete as<Preference>(p);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                                                    std::size_t bytes) {
  return put(as<Preference>(p)->attributes, attribute, value, bytes);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results, int* found) {
  const Description& desc = *as<Description>(description);
  const Layout &A = *as<Layout>(a), &B = *as<Layout>(b), &D = *as<Layout>(d);
  auto& wishes = as<Preference>(preference)->attributes;
  const std::uint64_t alignment = wishes[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
  const auto epilogue = desc.at(CUBLASLT_MATMUL_DESC_EPILOGUE);
  const bool with_aux = epilogue == CUBLASLT_EPILOGUE_GELU_AUX || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
                        epilogue == CUBLASLT_EPILOGUE_DGELU;
  *found = 0;
  const bool adds_bias = epilogue == CUBLASLT_EPILOGUE_BIAS || epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
  const auto reduction = adds_bias ? CUBLASLT_REDUCTION_SCHEME_NONE : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  if (wishes[CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK] != reduction || c != d) return CUBLAS_STATUS_INVALID_VALUE;
  // Like the real library on an H200, refuses outputs and biases that are not aligned to their type.
  const std::uint64_t least = D.type == CUDA_R_32F ? 4 : 2;
  if (wishes[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES] < least ||
      wishes[CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES] < least ||
      !aligned(as_pointer(desc.at(CUBLASLT_MATMUL_DESC_BIAS_POINTER)), least))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (A.type != B.type || (D.type != A.type && D.type != CUDA_R_32F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  const bool has_bias = desc.attributes.count(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) != 0;
  if (has_bias && desc.at(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE) != static_cast<std::uint64_t>(D.type))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (with_aux && (desc.at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD) % 8 != 0 ||
                   !aligned(as_pointer(desc.at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER)), 16)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  for (std::uint64_t i = 0; i < 3 && *found < most; ++i, ++*found) {
    results[i] = {};
    const Algorithm algorithm{kMagic, i, alignment, {}};
    std::memcpy(&results[i].algo, &algorithm, sizeof algorithm);
    results[i].state = CUBLAS_STATUS_SUCCESS;
    results[i].workspaceSize = wishes[CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES];
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) {
  result->workspaceSize = 0;
  return as<const Algorithm>(algorithm)->magic == kMagic ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t description, const void* alpha, const void* A,
                              cublasLtMatrixLayout_t a, const void* B, cublasLtMatrixLayout_t b, const void* beta,
                              const void* C, cublasLtMatrixLayout_t, void* D, cublasLtMatrixLayout_t d,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t,
                              cudaStream_t stream) {
  const auto* const chosen = as<const Algorithm>(algorithm);
  if (chosen->magic != kMagic || !aligned(workspace, 256)) return CUBLAS_STATUS_INVALID_VALUE;
  for (const void* p : {A, B, C, static_cast<const void*>(D),
                        as_pointer(as<Description>(description)->at(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER))})
    if (!aligned(p, chosen->alignment)) return CUBLAS_STATUS_INVALID_VALUE;
  auto* const call = new Call{*as<Description>(description),
                              *as<Layout>(a),
                              *as<Layout>(b),
                              *as<Layout>(d),
                              A,
                              B,
                              C,
                              D,
                              *static_cast<const float*>(alpha),
                              *static_cast<const float*>(beta)};
  return cudaLaunchHostFunc(stream, Call::run_and_delete, call) == cudaSuccess ? CUBLAS_STATUS_SUCCESS
                                                                               : CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // extern "C"
