#include "models/parameter.h"

#include <fnmatch.h>

#include <algorithm>
#include <numeric>

namespace strata::models {

std::size_t Parameter::size() const {
  return std::accumulate(shape.begin(), shape.end(), std::size_t{1},
                         [](std::size_t n, std::int64_t d) { return n * static_cast<std::size_t>(d); });
}

std::size_t Parameter::part_of_dimension() const {
  const std::size_t parts = slice.segments * slice_parts();
  return (static_cast<std::size_t>(shape[slice.dimension]) + parts - 1) / parts;
}

std::size_t Parameter::piece_capacity() const {
  return size() / static_cast<std::size_t>(shape[slice.dimension]) * slice.segments * part_of_dimension();
}

std::size_t Parameter::piece_size(std::size_t piece) const {
  const std::size_t shard = first_shard + piece, capacity = piece_capacity(), begin = shard / slice.sharers * capacity;
  if (shard % slice.sharers != 0) return 0;
  return std::min(capacity, size() - std::min(begin, size()));
}

Piece Parameter::piece(std::size_t piece) const {
  std::size_t inner = 1;
  for (std::size_t d = slice.dimension + 1; d < shape.size(); ++d) inner *= static_cast<std::size_t>(shape[d]);
  return {(first_shard + piece) / slice.sharers, slice_parts(), part_of_dimension() * inner};
}

bool is_frozen_by(std::span<const std::string> patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [whole = std::string(name)](const std::string& pattern) {
    return fnmatch(pattern.c_str(), whole.c_str(), FNM_NOESCAPE) == 0;
  });
}

std::string glob_of_layers(std::string_view name) {
  std::string out;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t end = std::min(name.find('.', at), name.size());
    const std::string_view part = name.substr(at, end - at);
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    out += number ? "*" : part;
    if (end < name.size()) out += '.';
    at = end + 1;
  }
  return out;
}

}  // namespace strata::models
