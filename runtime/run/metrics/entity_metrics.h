#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/run/metrics/class_metrics.h"

namespace strata::runtime {

// An entity of a text: its words [begin, end) and the number of its type.
struct Entity {
  std::size_t begin, end, type;
  bool operator==(const Entity&) const = default;
};

// Finds entities in the tags of words as seqeval's default mode and conlleval do. An entity begins at "B-", and at an
// "I-" that follows a word outside of entities or of another type. It ends before the next entity, and before "O".
class EntityTags {
 public:
  // names: the classes' names; models::are_entity_tags() must hold for them.
  explicit EntityTags(std::span<const std::string> names);
  std::vector<Entity> entities(std::span<const std::size_t> words) const;

 private:
  struct Tag {
    bool inside, begins;
    std::size_t type;
  };
  std::vector<Tag> tags_;
};

// Counts entities over texts. An entity is found if begin, end and type are right.
class EntityTally {
 public:
  explicit EntityTally(std::span<const std::string> names) : tags_(names) {}
  void clear() { counts_ = {}; }
  // The words of a text that have labels, in order: their labels and their predictions.
  void add(std::span<const std::size_t> labels, std::span<const std::size_t> said);

  struct Counts {
    std::uint64_t found = 0, said = 0, there = 0;
    // Micro averages over all types.
    ClassQuality quality() const;
  };
  const Counts& counts() const { return counts_; }

 private:
  EntityTags tags_;
  Counts counts_;
};

}  // namespace strata::runtime
