#pragma once
#include <memory>
#include <span>

#include "comm/communicator.h"
#include "runtime/run/metrics/score_collector.h"

namespace strata::runtime {

// An executor's exchange for an evaluation: one collective gathers the memory of each rank on all ranks.
class RankExchange {
 public:
  RankExchange(comm::World& world, std::size_t bytes)
      : world_(world),
        bytes_(bytes),
        arena_(world.allocate(bytes * static_cast<std::size_t>(world.size()))),
        lane_("gather", 1, world.rank(), world.abort_token()),
        communicator_(world.open(lane_)) {}

  RowExchange exchange() {
    return {{arena_.at(own()), bytes_}, [this]() -> std::span<const std::byte> {
              ++calls_;
              communicator_->all_gather({bytes_, 0, arena_.size()}, arena_.at(own()), arena_.data());
              lane_.synchronize();
              return {arena_.data(), arena_.size()};
            }};
  }
  int calls() const { return calls_; }

 private:
  std::size_t own() const { return bytes_ * static_cast<std::size_t>(world_.rank()); }

  comm::World& world_;
  std::size_t bytes_;
  device::Arena arena_;
  device::Lane lane_;
  std::unique_ptr<comm::Communicator> communicator_;
  int calls_ = 0;
};

}  // namespace strata::runtime
