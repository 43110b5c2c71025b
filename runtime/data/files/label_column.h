#pragma once
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <vector>

namespace strata::runtime {

// Labels as a batch has them, of documents or of tokens, one behind the other, in as few bytes each as they need: one
// if there are up to 255 of them, two up to 65,535, else four.
class LabelColumn {
 public:
  // kinds: labels are below it (as unsigned numbers), or device::kIgnoredLabel.
  explicit LabelColumn(std::uint64_t kinds);

  void reserve(std::uint64_t labels) { bytes_->reserve(labels * width_); }
  void push_back(std::int32_t label);

  std::uint64_t size() const { return bytes_->size() / width_; }
  std::int32_t operator[](std::uint64_t i) const;
  // Of labels [begin, begin + count): those that are not device::kIgnoredLabel.
  std::uint32_t counting(std::uint64_t begin, std::uint64_t count) const;

  // Bytes of all of them in a resource that gives memory out in order; moves them there from where they are.
  std::size_t bytes() const { return bytes_->size() + alignof(std::max_align_t); }
  void keep_in(std::pmr::memory_resource* memory);

 private:
  std::size_t width_;
  // A vector never leaves its resource: it is replaced.
  std::optional<std::pmr::vector<std::uint8_t>> bytes_;
};

}  // namespace strata::runtime
