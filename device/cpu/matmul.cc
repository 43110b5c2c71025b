#include "device/cpu/matmul.h"

#include <omp.h>

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "base/error.h"

namespace strata::device::cpu {
namespace {

using dnnl::memory;

memory::data_type data_type(DType t) {
  STRATA_CHECK(t != DType::fp16);
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// The library cuts a product by the number of threads that it sees when the primitive is created, and its bits may
// depend on that. So it must see one thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

// The strides of a matrix of rows x columns. The stride of a dimension of size 1 should not matter. But unless both
// strides are equal, oneDNN 3.7 treats distant elements as neighbours (in C's only column, in A^T's only row) and
// computes a wrong result. oneDNN 2 keeps its strides, because its bits are recorded.
memory::dims strides(std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
  if constexpr (DNNL_VERSION_MAJOR >= 3) {
    if (rows == 1 && column > 1) row = column;
    if (columns == 1 && row > 1) column = row;
  }
  return {row, column};
}

dnnl::matmul::primitive_desc describe_primitive(const dnnl::engine& engine, const MatmulShape& s) {
  const memory::desc a({s.m, s.k}, data_type(s.in), strides(s.m, s.k, s.a_row, s.a_column));
  const memory::desc b({s.k, s.n}, data_type(s.in), strides(s.k, s.n, s.b_row, s.b_column));
  const memory::desc c({s.m, s.n}, data_type(s.out), strides(s.m, s.n, s.c_row, 1));
  const memory::desc bias = s.bias ? memory::desc({1, s.n}, data_type(s.in), memory::dims{s.n, 1}) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // whatever the environment requests
  if (s.accumulate) {
    dnnl::post_ops sum;
    sum.append_sum(1.0f);
    attributes.set_post_ops(sum);
  }
#if DNNL_VERSION_MAJOR >= 3
  return dnnl::matmul::primitive_desc(engine, a, b, bias, c, attributes);
#else
  return dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, bias, c), attributes, engine);
#endif
}

}  // namespace

struct Matmul::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::matmul::primitive_desc description;
  dnnl::matmul primitive;
};

class Matmul::Worker {
 public:
  Worker(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& d) : stream_(engine) {
    const auto add = [&](int argument, const memory::desc& desc) {
      if (desc.get_size() == 0) return;  // no bias, or no scratch
      operands_[used_] = memory(desc, engine, DNNL_MEMORY_NONE);
      arguments_[used_] = {argument, operands_[used_].get()};
      ++used_;
    };
    add(DNNL_ARG_SRC, d.src_desc());
    add(DNNL_ARG_WEIGHTS, d.weights_desc());
    add(DNNL_ARG_DST, d.dst_desc());
    add(DNNL_ARG_SCRATCHPAD, d.scratchpad_desc());
    add(DNNL_ARG_BIAS, d.bias_desc());
  }

  // The C interface takes a plain array; the C++ one would build a map at every call. Statuses are compared as numbers,
  // because fmt 10 does not print enumerations.
  void run(const dnnl::matmul& primitive, const void* a, const void* b, const void* bias, void* c, void* scratch) {
    for (int i = 0; i < used_; ++i) {
      const int argument = arguments_[i].arg;
      const void* const data = argument == DNNL_ARG_SRC       ? a
                               : argument == DNNL_ARG_WEIGHTS ? b
                               : argument == DNNL_ARG_DST     ? c
                               : argument == DNNL_ARG_BIAS    ? bias
                                                              : scratch;
      STRATA_CHECK_EQ(int{dnnl_memory_set_data_handle(arguments_[i].memory, const_cast<void*>(data))}, 0);
    }
    STRATA_CHECK_EQ(int{dnnl_primitive_execute(primitive.get(), stream_.get(), used_, arguments_.data())}, 0);
  }

 private:
  dnnl::stream stream_;
  std::array<memory, 5> operands_;
  std::array<dnnl_exec_arg_t, 5> arguments_{};
  int used_ = 0;
};

Matmul::Matmul(const MatmulShape& s) : impl_(std::make_unique<Impl>()) {
  const OneThread scope;
  try {
    impl_->description = describe_primitive(impl_->engine, s);
    impl_->primitive = dnnl::matmul(impl_->description);
  } catch (const dnnl::error& e) {
    fail(Exit::failed, "oneDNN refuses a product of [{} x {}] by [{} x {}], {} to {} (status {}: {})", s.m, s.k, s.k,
         s.n, name_of(s.in), name_of(s.out), static_cast<int>(e.status), e.what());
  }
}
Matmul::~Matmul() = default;
Matmul::Matmul(Matmul&&) noexcept = default;
Matmul& Matmul::operator=(Matmul&&) noexcept = default;

std::size_t Matmul::scratch_bytes() const {
  return impl_->description.scratchpad_desc().get_size();
}

void Matmul::DeleteWorker::operator()(Worker* worker) const {
  delete worker;
}
Matmul::WorkerPtr Matmul::make_worker() const {
  return WorkerPtr(new Worker(impl_->engine, impl_->description));
}

void Matmul::run(Worker& worker, const void* a, const void* b, const void* bias, void* c, void* scratch) const {
  worker.run(impl_->primitive, a, b, bias, c, scratch);
}

}  // namespace strata::device::cpu
