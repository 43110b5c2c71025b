#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "device/lane.h"
#include "runtime/checkpoint/file_system.h"
#include "runtime/checkpoint/folder.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/shard.h"
#include "runtime/execute/executor.h"
#include "runtime/plan/job.h"

namespace strata::runtime {

// What checkpoints cost this rank.
struct CheckpointFigures {
  std::int64_t written;  // durable ones
  std::uint64_t bytes;   // of this rank's file
  double held_ms;        // that training waited for them, over all
  double last_ms;        // from the begin of the last one until it was durable
};

// Writes this rank's shard of checkpoints, of a job whose recipe has a checkpoint.dir, while training continues: it is
// what the plan's tasks of the lane checkpoint do, which read the live state unit by unit, and for which whatever
// writes that state waits. An error in the lane ends the run; what was published before stays. Every rank has one;
// destroyed before the executor.
class CheckpointWriter final : public Saver {
 public:
  // base: the BaseHash of an adapter's base, which is then left out of the files. Collective.
  CheckpointWriter(const Job& job, comm::World& world, Executor& executor, CheckpointFolder& folder,
                   const std::string& base = {});
  ~CheckpointWriter() override;

  // Between steps: the next one begins the checkpoint of `progress`, which waits until the one before it is durable.
  // All ranks alike.
  void start(const Progress& progress);
  // Returns once the last one begun is durable.
  void finish();

  CheckpointFigures figures() const;

  void save(device::Lane& lane, std::size_t unit) override;
  void publish(device::Lane& lane) override;

 private:
  struct Part {  // of an extent: where its bytes lie in the executor
    std::size_t unit, begin;
    StateKind kind;
  };
  struct Record {  // what ranks tell rank 0 of their file
    std::uint64_t bytes, header_bytes, header_hash;
  };

  void plan_file(const Job& job);
  void open_file();
  void write_unit(std::size_t unit);
  void write_extent(Extent& extent, const Part& part);
  void flush();
  void seal_file();
  void publish_folder();
  std::string file_name(int rank) const;

  comm::World& world_;
  Executor& executor_;
  CheckpointFolder& folder_;
  Manifest manifest_;
  std::vector<Extent> extents_;
  std::vector<Part> parts_;                // of extents_, in their order
  std::vector<std::size_t> first_extent_;  // by unit, and the total
  std::span<std::byte> staging_;           // of the plan
  std::size_t filled_ = 0;
  std::uint64_t header_bytes_ = 0, file_bytes_ = 0, flushed_ = 0;
  std::filesystem::path temporary_;
  std::unique_ptr<WritableFile> file_;
  Record record_{};
  std::vector<Record> records_;  // by rank
  std::int64_t begun_ = 0;
  double waited_ms_ = 0;
  Span last_;  // when the last one began, and when it was durable
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace strata::runtime
