#pragma once
#include <cstddef>

#include "base/error.h"
#include "device/numeric/dtype.h"

namespace strata::device {

// `size` elements of `dtype` at `data` in device memory; owns nothing. An empty view (no data) means that an operation
// does not have this operand.
struct ConstView {
  const std::byte* data = nullptr;
  std::size_t size = 0;
  DType dtype = DType::fp32;

  explicit operator bool() const { return data != nullptr; }
  std::size_t bytes() const { return size * size_of(dtype); }
  template <typename T>
  const T* as() const {
    STRATA_CHECK(dtype == dtype_of<T>);
    return reinterpret_cast<const T*>(data);
  }
  ConstView sub(std::size_t offset, std::size_t count) const {
    STRATA_CHECK_LE(offset + count, size);
    return {data + offset * size_of(dtype), count, dtype};
  }
};

struct View {
  std::byte* data = nullptr;
  std::size_t size = 0;
  DType dtype = DType::fp32;

  explicit operator bool() const { return data != nullptr; }
  operator ConstView() const { return {data, size, dtype}; }
  std::size_t bytes() const { return size * size_of(dtype); }
  template <typename T>
  T* as() const {
    STRATA_CHECK(dtype == dtype_of<T>);
    return reinterpret_cast<T*>(data);
  }
  View sub(std::size_t offset, std::size_t count) const {
    STRATA_CHECK_LE(offset + count, size);
    return {data + offset * size_of(dtype), count, dtype};
  }
};

}  // namespace strata::device
