#pragma once
#include <cstdint>
#include <memory>
#include <optional>

#include "comm/communicator.h"
#include "launcher/control/control.h"
#include "runtime/checkpoint/writer.h"
#include "runtime/job/make_job.h"
#include "runtime/run/resume.h"
#include "runtime/run/trainer.h"

namespace strata::launcher {

// A training's checkpoints: writes one when it is due or asked for. Does nothing if the recipe names no folder. Made
// before the trainer, so that a folder that cannot be used is refused early; every rank has one.
class Checkpoints {
 public:
  Checkpoints(const runtime::Job& job, comm::World& world);
  // Once the trainer stands where the run begins or resumes. Job, world, trainer and control outlive this.
  void open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const runtime::Start& start,
            control::Control& control);

  bool can_save() const { return writer_.has_value(); }
  // After which step the newest was begun; -1: none was.
  std::int64_t saved_step() const { return saved_step_; }

  // After a step: writes what is due, or `asked` for. True if the run is to end here (checkpoint.stop_after).
  bool after(const runtime::Trainer& trainer, bool asked);
  void save(const runtime::Trainer& trainer);
  // Waits until what was begun is durable.
  void finish();
  std::optional<runtime::CheckpointFigures> figures() const;

 private:
  runtime::Recipe::Checkpoint recipe_;
  std::unique_ptr<runtime::FileSystem> system_ = runtime::posix_file_system();
  std::optional<runtime::CheckpointFolder> folder_;
  std::optional<runtime::CheckpointWriter> writer_;
  std::int64_t saved_step_ = -1;
};

}  // namespace strata::launcher
