#pragma once
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/files/class_sets.h"

namespace strata::runtime {

// A batch's labels, of documents or of tokens, one after the other, in as few bytes each as they need: one for up to
// 255 kinds, two for up to 65,535, otherwise four.
class LabelColumn {
 public:
  // `kinds`: labels are below it (as unsigned numbers), or device::kIgnoredLabel.
  explicit LabelColumn(std::uint64_t kinds);
  // Labels are the numbers of sets, which are added to sets().
  explicit LabelColumn(ClassSets sets);

  void reserve(std::uint64_t labels) { bytes_->reserve(labels * width_); }
  void push_back(std::int32_t label);

  std::uint64_t size() const { return bytes_->size() / width_; }
  std::int32_t operator[](std::uint64_t i) const;
  // The number of labels in [begin, begin + count) that are not device::kIgnoredLabel.
  std::uint32_t counting(std::uint64_t begin, std::uint64_t count) const;

  // The sets of classes that labels number; null: labels say all.
  ClassSets* sets() { return sets_ ? &*sets_ : nullptr; }
  const ClassSets* sets() const { return sets_ ? &*sets_ : nullptr; }

  // The bytes that all labels and sets take in a monotonic resource; keep_in() moves them there.
  std::size_t bytes() const { return bytes_->size() + alignof(std::max_align_t) + (sets_ ? sets_->bytes() : 0); }
  void keep_in(std::pmr::memory_resource* memory);

 private:
  std::size_t width_;
  // A vector cannot change its resource, so keep_in() replaces it.
  std::optional<std::pmr::vector<std::uint8_t>> bytes_;
  std::optional<ClassSets> sets_;
};

}  // namespace strata::runtime
