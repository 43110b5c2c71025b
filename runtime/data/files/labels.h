#pragma once
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <optional>
#include <span>

#include "models/classes.h"
#include "runtime/data/files/tokens.h"

namespace strata::runtime {

// Sets of classes, numbered from 0 as they are added. A set takes two bytes per class.
class ClassSets {
 public:
  // `classes`: their number, at most 65,536.
  explicit ClassSets(std::size_t classes);

  std::size_t classes() const { return classes_; }
  // Adds a set and returns its number. The classes may be in any order.
  std::int32_t add(std::span<const std::int32_t> classes);
  // The classes of a set, in the order in which they were added.
  std::span<const std::uint16_t> of(std::int32_t set) const;
  // Writes the bits of a set in the layout of device::class_set_words().
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

// A batch's labels, of documents or of tokens, one after another, in one byte each for up to 255 kinds, two for up to
// 65,535, otherwise four.
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

  // The sets of classes: a label is the number of its set. Null if labels hold the targets themselves.
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

// A column for labels of these classes.
LabelColumn column_for(const models::Classes& classes);

// Appends the labels that a token file's sidecar names (docs/formats.md, "Labels") to `out`, in the form of a batch.
// Per document: a class, the bits of its classes, the number of their set, or the bits of a number. Per token: a class,
// or device::kIgnoredLabel if none counts. Throws Error{usage} if the sidecar names no labels, if their kind does not
// match `classes` and `per_token`, or if one is not a class. Throws Error{corrupt} if the file contradicts the sidecar.
void read_labels(const TokenFile& file, const models::Classes& classes, bool per_token, LabelColumn& out);
// Makes the last of these checks without reading the labels. Does nothing if the sidecar names none.
void check_label_file(const TokenFile& file);

}  // namespace strata::runtime
