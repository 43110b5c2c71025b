#include "runtime/data/files/class_sets.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kWordBits = 32;

template <typename T>
void move_to(std::pmr::memory_resource* memory, std::optional<std::pmr::vector<T>>& values) {
  std::pmr::vector<T> moved(values->begin(), values->end(), memory);
  values.emplace(std::move(moved));
}

}  // namespace

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
  STRATA_CHECK_EQ(words.size(), (classes_ + kWordBits - 1) / kWordBits);
  std::ranges::fill(words, 0u);
  for (const std::uint16_t c : of(set)) words[c / kWordBits] |= std::uint32_t{1} << c % kWordBits;
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
