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

// The cost of checkpoints on this rank.
struct CheckpointFigures {
  std::int64_t written;  // durable checkpoints
  std::uint64_t bytes;   // the size of this rank's file
  double held_ms;        // total time that training waited for checkpoints
  double last_ms;        // time from the start of the last one until it was durable
};

// Writes this rank's shards of checkpoints while training continues, for a job whose recipe has a checkpoint.dir. The
// plan's tasks of the checkpoint lane call it; they read the live state unit by unit, and tasks that write that state
// wait for them. An error ends the run; published checkpoints stay. Every rank has one; destroy it before the executor.
class CheckpointWriter final : public Saver {
 public:
  // `base`: the BaseHash of an adapter's base; the files then do not contain the base. `data_hash`, `validation_hash`:
  // as in Manifest. Collective.
  CheckpointWriter(const Job& job, comm::World& world, Executor& executor, CheckpointFolder& folder,
                   const std::string& base = {}, const std::string& data_hash = {},
                   const std::string& validation_hash = {});
  ~CheckpointWriter() override;

  // Call between steps, on every rank: waits until the previous checkpoint is durable; the next step begins to write
  // the checkpoint of `progress`.
  void start(const Progress& progress);
  // Returns when the last started checkpoint is durable.
  void finish();

  CheckpointFigures figures() const;

  void save(device::Lane& lane, std::size_t unit) override;
  void publish(device::Lane& lane) override;

 private:
  struct Part {  // the place of an extent's bytes in the executor
    std::size_t unit, begin;
    StateKind kind;
  };
  struct Record {  // a rank's report to rank 0 about its file
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
  std::vector<Part> parts_;                // parts of extents_, in the same order
  std::vector<std::size_t> first_extent_;  // one per unit, and the total at the end
  std::span<std::byte> staging_;           // memory of the plan
  std::size_t filled_ = 0;
  std::uint64_t header_bytes_ = 0, file_bytes_ = 0, flushed_ = 0;
  std::filesystem::path temporary_;
  std::unique_ptr<WritableFile> file_;
  Record record_{};
  std::vector<Record> records_;  // one per rank
  std::int64_t begun_ = 0;
  bool opened_ = false;  // the file of the checkpoint that was started last
  double waited_ms_ = 0;
  Span last_;  // when the last checkpoint began, and when it was durable
  std::unique_ptr<comm::Communicator> communicator_;
};

}  // namespace strata::runtime
