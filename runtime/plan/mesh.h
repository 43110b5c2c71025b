#pragma once
#include <cstddef>
#include <cstdint>

#include "models/flat_range.h"

namespace strata::runtime {

// What state is cut over. A rank is nothing but its coordinates, one per axis.
enum class Axis : std::uint8_t {
  none,  // whole on every rank
  data,  // over the ranks that each take other micro-batches of a step
};

struct Coordinates {
  int world = 0;  // the rank as processes are numbered
  int data = 0;
};

// The ranks of a run.
struct Mesh {
  int world = 1;

  int data() const { return world; }
  int size(Axis axis) const { return axis == Axis::data ? data() : 1; }
  Coordinates at(int rank) const { return {rank, rank}; }
  // The global index of a rank's micro-batch g of a step that begins with micro-batch `first`. It orders gradients and
  // says which data a rank reads, so it counts the data ranks, however state is cut.
  std::uint64_t micro_batch(std::uint64_t first, std::uint64_t g, const Coordinates& rank) const {
    return first + g * static_cast<std::uint64_t>(data()) + static_cast<std::uint64_t>(rank.data);
  }
  bool operator==(const Mesh&) const = default;
};

// A flat buffer in equal pieces over an axis. Only here does a rank become elements.
struct Cut {
  Axis over = Axis::none;
  int pieces = 1;
  std::size_t elements = 0;  // of all pieces

  std::size_t size() const { return elements / static_cast<std::size_t>(pieces); }
  models::ElementRange piece(int index) const {
    const std::size_t begin = size() * static_cast<std::size_t>(index);
    return {begin, begin + size()};
  }
  models::ElementRange piece(const Coordinates& rank) const { return piece(over == Axis::data ? rank.data : 0); }
  // What the rank's piece has of the range; [x, x) if nothing.
  models::ElementRange piece_of(const models::ElementRange& range, const Coordinates& rank) const;
  // The same buffer, cut over another axis.
  Cut recut(const Mesh& mesh, Axis axis) const { return {axis, mesh.size(axis), elements}; }
};

// The elements of a piece in a range: of the first piece, of the piece that has least, of the piece that has most.
struct Portions {
  std::size_t first, least, most;
};
Portions portions_of(const models::ElementRange& range, const Cut& cut);

}  // namespace strata::runtime
