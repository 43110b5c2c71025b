#include "device/cpu/matmul.h"

#include <omp.h>

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "device/error.h"

namespace strata::device::cpu {
namespace {

using dnnl::memory;

memory::data_type data_type(DType t) {
  STRATA_CHECK(t != DType::fp16);
  return t == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

// The library cuts a product by the number of threads it sees when the primitive is made, and so may its bits: it must
// see one.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

dnnl::matmul::primitive_desc describe_primitive(const dnnl::engine& engine, const MatmulShape& s) {
  const memory::desc a({s.m, s.k}, data_type(s.in), memory::dims{s.a_row, s.a_column});
  const memory::desc b({s.k, s.n}, data_type(s.in), memory::dims{s.b_row, s.b_column});
  const memory::desc c({s.m, s.n}, data_type(s.out), memory::dims{s.c_row, 1});
  const memory::desc bias = s.bias ? memory::desc({1, s.n}, data_type(s.in), memory::dims{s.n, 1}) : memory::desc();
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);  // whatever the environment asks for
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
  Worker(const dnnl::engine& engine, const dnnl::matmul::primitive_desc& d)
      : stream_(engine),
        operands_{memory(d.src_desc(), engine, DNNL_MEMORY_NONE), memory(d.weights_desc(), engine, DNNL_MEMORY_NONE),
                  memory(d.dst_desc(), engine, DNNL_MEMORY_NONE), memory(d.scratchpad_desc(), engine, DNNL_MEMORY_NONE),
                  memory(d.bias_desc(), engine, DNNL_MEMORY_NONE)} {
    constexpr std::array<int, 5> kArgument = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
                                              DNNL_ARG_BIAS};
    for (std::size_t i = 0; i < operands_.size(); ++i) arguments_[i] = {kArgument[i], operands_[i].get()};
  }

  // The C interface, which takes a plain array: the C++ one builds a map at every call.
  void run(const dnnl::matmul& primitive, const std::array<const void*, 5>& data) {
    const int used = data[4] ? 5 : 4;
    for (int i = 0; i < used; ++i) set(operands_[i], data[i]);
    STRATA_CHECK_EQ(dnnl_primitive_execute(primitive.get(), stream_.get(), used, arguments_.data()), dnnl_success);
  }

 private:
  static void set(const memory& operand, const void* data) {
    STRATA_CHECK_EQ(dnnl_memory_set_data_handle(operand.get(), const_cast<void*>(data)), dnnl_success);
  }

  dnnl::stream stream_;
  std::array<memory, 5> operands_;
  std::array<dnnl_exec_arg_t, 5> arguments_;
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
const char* Matmul::implementation() const {
  return impl_->description.impl_info_str();
}

void Matmul::DeleteWorker::operator()(Worker* worker) const {
  delete worker;
}
Matmul::WorkerPtr Matmul::make_worker() const {
  return WorkerPtr(new Worker(impl_->engine, impl_->description));
}

void Matmul::run(Worker& worker, const void* a, const void* b, const void* bias, void* c, void* scratch) const {
  worker.run(impl_->primitive, {a, b, c, scratch, bias});
}

}  // namespace strata::device::cpu
