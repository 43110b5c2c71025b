#include "models/batch.h"

#include <utility>

namespace strata::models {
namespace {

// The next `count` elements after `at`.
template <typename T>
std::span<T> column(std::byte*& at, std::size_t count) {
  return {reinterpret_cast<T*>(std::exchange(at, at + count * sizeof(T))), count};
}

}  // namespace

BatchRows BatchShape::rows(std::byte* memory) const {
  BatchRows out{column<std::uint32_t>(memory, tokens), column<std::int32_t>(memory, tokens),
                column<std::uint32_t>(memory, tokens), column<device::RowRange>(memory, tokens)};
  if (loss_rows > 0) out.loss_rows = column<std::uint32_t>(memory, loss_rows);
  if (types) out.types = column<std::uint32_t>(memory, tokens);
  if (class_words > 0) out.class_sets = column<std::uint32_t>(memory, set_words());
  out.padding = padding;
  return out;
}

void place_padding(const BatchRows& rows) {
  if (!rows.padding) return;
  std::uint32_t last = 0;
  for (std::size_t row = 0; row < rows.tokens.size(); ++row) {
    if (rows.positions[row] == 0) last = 0;
    rows.positions[row] = rows.tokens[row] == *rows.padding ? 0 : ++last;
  }
}

Batch BatchShape::at(const std::byte* memory) const {
  const BatchRows r = rows(const_cast<std::byte*>(memory));
  return {r.tokens.data(),
          r.labels.data(),
          r.positions.data(),
          r.documents.data(),
          r.loss_rows.empty() ? nullptr : r.loss_rows.data(),
          r.types.empty() ? nullptr : r.types.data(),
          r.class_sets.empty() ? nullptr : r.class_sets.data()};
}

}  // namespace strata::models
