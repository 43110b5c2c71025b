#pragma once
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>
#include <vector>

namespace strata::runtime {

// Sets of classes, numbered from 0 in the order in which they are added. A set takes two bytes per class in it.
class ClassSets {
 public:
  // `classes`: how many there are, at most 65,536.
  explicit ClassSets(std::size_t classes);

  std::size_t classes() const { return classes_; }
  // Adds a set and returns its number. The classes come in any order.
  std::int32_t add(std::span<const std::int32_t> classes);
  // The classes of a set, in the order in which they came.
  std::span<const std::uint16_t> of(std::int32_t set) const;
  // Writes the bits of a set, as device::class_set_words() says.
  void write(std::int32_t set, std::span<std::uint32_t> words) const;

  // The bytes that all sets take in a monotonic resource; keep_in() moves them there.
  std::size_t bytes() const;
  void keep_in(std::pmr::memory_resource* memory);

 private:
  std::size_t classes_;
  // A vector cannot change its resource, so keep_in() replaces both.
  std::optional<std::pmr::vector<std::uint64_t>> ends_;  // where each set ends among the members
  std::optional<std::pmr::vector<std::uint16_t>> members_;
};

}  // namespace strata::runtime
