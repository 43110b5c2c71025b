#pragma once
#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/plan/plan.h"
#include "runtime/plan/request.h"

namespace strata::runtime {

// Bytes of a buffer: [offset, offset + bytes), counted from the rank's own part of it where `own`.
struct Stretch {
  int buffer = -1;
  std::size_t offset = 0, bytes = 0;
  bool own = false;
};

using models::ElementRange;

// What one gather or upload brings: a unit (part -1), or a part of it.
struct Piece {
  int unit, part;
};

// A plan being written: tasks in issue order with the buffers they use, and the ways between tiers. Waits, offsets and
// memory come later, from the uses recorded here.
class Draft {
 public:
  explicit Draft(const PlanRequest& request);

  const PlanRequest& request;
  const models::Model& model;
  const std::size_t element;  // bytes, of the compute dtype
  StepPlan plan{};
  int squares = -1;          // what the norms add to
  When when = When::always;  // of tasks added from now on

  int units() const { return static_cast<int>(model.units.size()); }
  int last() const { return units() - 1; }
  bool single() const { return request.ranks == 1; }
  bool fp32() const { return request.shape.dtype == device::DType::fp32; }
  const UnitLayout& layout(int unit) const { return plan.layout.units[static_cast<std::size_t>(unit)]; }
  const models::Unit& unit(int i) const { return *model.units[static_cast<std::size_t>(i)]; }
  std::size_t part_size(int unit) const { return plan.part_size(static_cast<std::size_t>(unit)); }
  // The last part takes the padding.
  ElementRange range_of(const Piece& piece) const;
  // "gathered block 3, part 1".
  std::string text_of(std::string_view what, const Piece& piece) const;

  int add_buffer(std::string name, Kind kind, Tier tier, std::size_t bytes, bool whole_cycle);
  Task& add_task(TaskKind kind, LaneId lane, int unit, int micro_batch);
  static void use(Task& task, int buffer, Role role, Access access);
  static void use(Task& task, const Stretch& stretch, Role role, Access access);
  Tier tier_of(int buffer) const { return plan.buffers[static_cast<std::size_t>(buffer)].tier; }
  Stretch whole(int buffer) const { return {buffer, 0, plan.buffers[static_cast<std::size_t>(buffer)].bytes}; }

  // One step of the way towards `to`: stretches that lie in the tier beside it, copied by one task. Others stay as they
  // are. `kind`: of the copies' buffers.
  void hop(std::vector<Stretch>& stretches, Tier from, Tier to, int unit, std::string_view what, Kind kind);
  // Copies in `to` (device or host) of what lies elsewhere; what lies there already is itself.
  std::vector<Stretch> bring(std::vector<Stretch> stretches, Tier to, int unit, std::string_view what,
                             Kind kind = Kind::staging);
  // The contents of each stretch to its home, where that is another.
  void put(std::vector<Stretch> from, std::vector<Stretch> homes, int unit, std::string_view what);

  // Of the task's range, elements of `size` bytes. Counted is what rank 0 sends; who sends most bounds the time.
  void count_all_gather(Task& task, std::size_t size);
  // Elements of the range that rank 0 owns, and the least and the most that any rank does.
  struct Pieces {
    std::size_t of_rank0, least, most;
  };
  static Pieces pieces_of(const ElementRange& range, std::size_t shard, int ranks);

 private:
  void move(std::span<const Stretch> from, std::span<const Stretch> to, int unit);
};

}  // namespace strata::runtime
