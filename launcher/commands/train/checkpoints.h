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

// A training's checkpoints: writes one when it is due or asked for. Does nothing if the recipe names no folder. It is
// made before the trainer, so that an unusable folder is refused early. Every rank has one.
class Checkpoints {
 public:
  Checkpoints(const runtime::Job& job, comm::World& world);
  // Call it when the trainer is where the run begins or resumes. Job, world, trainer and control must outlive this
  // object.
  void open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer, const runtime::Start& start,
            control::Control& control);

  bool can_save() const { return writer_.has_value(); }
  // The step of the newest checkpoint that was begun; -1 if none was.
  std::int64_t saved_step() const { return saved_step_; }

  // Call it after a step: writes a checkpoint if it is due or `asked` for. True if the run must end here
  // (checkpoint.stop_after).
  bool after(const runtime::Trainer& trainer, bool asked);
  void save(const runtime::Trainer& trainer);
  // Waits until the checkpoints that were begun are durable.
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
