#include "runtime/data/files/label_column.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "base/error.h"
#include "device/ops/losses/cross_entropy.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kBitsPerWord = 32;

template <typename T>
constexpr std::uint32_t kIgnoredIn = std::numeric_limits<T>::max();

template <typename T>
std::uint32_t read(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void move_to(std::pmr::memory_resource* memory, std::optional<std::pmr::vector<T>>& values) {
  std::pmr::vector<T> moved(values->begin(), values->end(), memory);
  values.emplace(std::move(moved));
}

}  // namespace

// The largest number of one or two bytes encodes the label that does not count.
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
  move_to(memory, bytes_);
  if (sets_) sets_->keep_in(memory);
}

ClassSets::ClassSets(std::size_t classes) : classes_(classes), ends_(std::in_place), members_(std::in_place) {
  STRATA_CHECK_LE(classes, std::size_t{1} << 16);
}

std::int32_t ClassSets::add(std::span<const std::int32_t> classes) {
  STRATA_CHECK_LT(ends_->size(), static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
  for (const std::int32_t c : classes) {
    STRATA_CHECK_LT(static_cast<std::size_t>(c), classes_);
    members_->push_back(static_cast<std::uint16_t>(c));
  }
  ends_->push_back(members_->size());
  return static_cast<std::int32_t>(ends_->size() - 1);
}

std::span<const std::uint16_t> ClassSets::of(std::int32_t set) const {
  const auto number = static_cast<std::size_t>(set);
  STRATA_CHECK_LT(number, ends_->size());
  const std::uint64_t begin = number == 0 ? 0 : (*ends_)[number - 1];
  return std::span(*members_).subspan(begin, (*ends_)[number] - begin);
}

void ClassSets::write(std::int32_t set, std::span<std::uint32_t> words) const {
  STRATA_CHECK_EQ(words.size(), (classes_ + kBitsPerWord - 1) / kBitsPerWord);
  std::ranges::fill(words, 0u);
  for (const std::uint16_t c : of(set)) words[c / kBitsPerWord] |= std::uint32_t{1} << c % kBitsPerWord;
}

std::size_t ClassSets::bytes() const {
  return ends_->size() * sizeof(std::uint64_t) + members_->size() * sizeof(std::uint16_t) +
         2 * alignof(std::max_align_t);
}

void ClassSets::keep_in(std::pmr::memory_resource* memory) {
  if (ends_->get_allocator().resource() == memory) return;
  move_to(memory, ends_);
  move_to(memory, members_);
}

}  // namespace strata::runtime
