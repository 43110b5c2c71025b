#include "runtime/data/files/label_column.h"

#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"

namespace strata::runtime {
namespace {

template <typename T>
constexpr std::uint32_t kIgnoredIn = std::numeric_limits<T>::max();

template <typename T>
std::uint32_t read(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

// The largest number of one or two bytes stands for the label that does not count.
LabelColumn::LabelColumn(std::uint64_t kinds)
    : width_(kinds <= kIgnoredIn<std::uint8_t>    ? 1
             : kinds <= kIgnoredIn<std::uint16_t> ? 2
                                                  : 4),
      bytes_(std::in_place) {}

LabelColumn::LabelColumn(ClassSets sets) : LabelColumn(std::uint64_t{1} << 32) {
  sets_.emplace(std::move(sets));
}

void LabelColumn::push_back(std::int32_t label) {
  const bool ignored = label == device::kIgnoredLabel;
  const auto value = static_cast<std::uint32_t>(label);
  switch (width_) {
    case 1:
      if (!ignored) STRATA_CHECK_LT(value, kIgnoredIn<std::uint8_t>);
      bytes_->push_back(static_cast<std::uint8_t>(ignored ? kIgnoredIn<std::uint8_t> : value));
      return;
    case 2: {
      if (!ignored) STRATA_CHECK_LT(value, kIgnoredIn<std::uint16_t>);
      const auto two = static_cast<std::uint16_t>(ignored ? kIgnoredIn<std::uint16_t> : value);
      const auto* at = reinterpret_cast<const std::uint8_t*>(&two);
      bytes_->insert(bytes_->end(), at, at + sizeof two);
      return;
    }
    default: {
      const auto* at = reinterpret_cast<const std::uint8_t*>(&label);
      bytes_->insert(bytes_->end(), at, at + sizeof label);
    }
  }
}

std::int32_t LabelColumn::operator[](std::uint64_t i) const {
  const std::uint8_t* at = bytes_->data() + i * width_;
  std::uint32_t value = 0, ignored = static_cast<std::uint32_t>(device::kIgnoredLabel);
  if (width_ == 1) {
    value = *at;
    ignored = kIgnoredIn<std::uint8_t>;
  } else if (width_ == 2) {
    value = read<std::uint16_t>(at);
    ignored = kIgnoredIn<std::uint16_t>;
  } else {
    value = read<std::uint32_t>(at);
  }
  return value == ignored ? device::kIgnoredLabel : static_cast<std::int32_t>(value);
}

std::uint32_t LabelColumn::counting(std::uint64_t begin, std::uint64_t count) const {
  std::uint32_t sum = 0;
  for (std::uint64_t i = begin; i < begin + count; ++i) sum += (*this)[i] != device::kIgnoredLabel;
  return sum;
}

void LabelColumn::keep_in(std::pmr::memory_resource* memory) {
  if (bytes_->get_allocator().resource() == memory) return;
  std::pmr::vector<std::uint8_t> moved(bytes_->begin(), bytes_->end(), memory);
  bytes_.emplace(std::move(moved));
  if (sets_) sets_->keep_in(memory);
}

}  // namespace strata::runtime
