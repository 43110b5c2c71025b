#include "runtime/plan/layout/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <utility>
#include <vector>

#include "base/error.h"

namespace strata::runtime {
namespace {

models::ElementRange both(const models::ElementRange& range, const models::ElementRange& piece) {
  return {std::clamp(piece.begin, range.begin, range.end), std::clamp(piece.end, range.begin, range.end)};
}

// The group of `rank_at(i)` for each of `size` places; this rank has place `own`.
template <typename RankAt>
comm::Group line(int size, int own, RankAt rank_at) {
  comm::Group out{{}, own};
  for (int i = 0; i < size; ++i) out.members.push_back(rank_at(i));
  return out;
}

}  // namespace

// A shard is a mixed-radix number whose most significant digit is the rank's place in its smallest group. So a piece of
// a cut into fewer pieces is a range of consecutive shards.
Coordinates Mesh::at(int rank) const {
  const int data_rank = rank / tensor % data();
  int shard = 0, within = 1;
  const auto take = [&](int ranks) {
    const int members = ranks / within;  // in units of the previous group size
    shard = shard * members + data_rank % ranks / within;
    within = ranks;
  };
  for (const int ranks : groups) take(ranks);
  take(data());
  return {rank, data_rank, shard, rank % tensor, rank / tensor / data()};
}

int Mesh::data_per_node() const {
  const int of_stage = ranks_per_stage();
  if (node == 0) return 0;
  if (node % of_stage == 0) return data();
  if (tensor % node == 0) return 1;
  return node % tensor == 0 && of_stage % node == 0 ? node / tensor : 0;
}

std::string Mesh::name_of(int rank) const {
  const std::string where = coordinates_text({&rank, 1});
  return where.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, where);
}

std::string Mesh::coordinates_text(std::span<const int> ranks) const {
  std::string out;
  if (tensor * stages == 1) return out;
  const auto add = [&](const char* axis, int pieces, int Coordinates::*at) {
    if (pieces == 1) return;
    const auto [first, last] =
        std::ranges::minmax(ranks | std::views::transform([&](int r) { return this->at(r).*at; }));
    out +=
        fmt::format("{}{} {}{}", out.empty() ? "" : ", ", axis, first, last > first ? fmt::format(" to {}", last) : "");
  };
  add("data", data(), &Coordinates::data);
  add("tensor", tensor, &Coordinates::tensor);
  add("stage", stages, &Coordinates::stage);
  return out;
}

comm::Group Mesh::along(Axis axis, int rank) const {
  const Coordinates at = this->at(rank);
  switch (axis) {
    case Axis::none:
      break;
    case Axis::data:
      return line(data(), at.data, [&](int i) { return rank_of(i, at.tensor, at.stage); });
    case Axis::tensor:
      return line(tensor, at.tensor, [&](int i) { return rank_of(at.data, i, at.stage); });
    case Axis::stage:
      return line(stages, at.stage, [&](int i) { return rank_of(at.data, at.tensor, i); });
  }
  return {{rank}, 0};
}

std::vector<int> Mesh::nodes() const {
  std::vector<int> out;
  if (node > 0 && node < world)
    for (int rank = 0; rank < world; ++rank) out.push_back(node_of(rank));
  return out;
}

int ranks_per_node(const std::vector<int>& nodes, int ranks) {
  if (nodes.empty()) return ranks;
  STRATA_CHECK_EQ(nodes.size(), static_cast<std::size_t>(ranks));
  const auto each = static_cast<int>(std::ranges::count(nodes, nodes[0]));
  for (int rank = 0; rank < ranks; ++rank)
    if (nodes[static_cast<std::size_t>(rank)] != rank / each) return 0;
  return ranks % each == 0 ? each : 0;
}

comm::Group Mesh::group(int rank, int within, int pieces) const {
  const Coordinates own = at(rank);
  const int copies = data() / pieces, first = own.data / within * within;
  comm::Group out{{}, 0};
  std::vector<std::pair<int, int>> found;  // shard, rank
  for (int i = first; i < first + within; ++i) {
    const int other = rank_of(i, own.tensor, own.stage), shard = at(other).shard;
    if (shard / copies == own.shard / copies) found.emplace_back(shard, other);
  }
  if (!std::ranges::is_sorted(found)) std::ranges::sort(found);
  out.members.reserve(found.size());
  for (const auto& [shard, other] : found) out.members.push_back(other);
  out.index = static_cast<int>(std::ranges::find(out.members, rank) - out.members.begin());
  return out;
}

models::ElementRange Cut::piece_of(const models::ElementRange& range, const Coordinates& rank) const {
  return both(range, piece(rank));
}

Portions portions_of(const models::ElementRange& range, const Cut& cut) {
  const auto portion = [&](int index) { return both(range, cut.piece(index)).size(); };
  // The pieces at the two ends of the range overlap it partly, those in between are inside it, and all others are
  // outside.
  const int first = static_cast<int>(range.begin / cut.size());
  const int last = range.size() > 0 ? static_cast<int>((range.end - 1) / cut.size()) : first;
  const std::size_t ends[] = {portion(first), portion(last)};
  const bool all = first == 0 && last == cut.pieces - 1;
  return {portion(0), all ? std::min(ends[0], ends[1]) : 0, last - first > 1 ? cut.size() : std::max(ends[0], ends[1])};
}

}  // namespace strata::runtime
