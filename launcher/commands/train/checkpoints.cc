#include <fmt/format.h>

#include <filesystem>

#include "launcher/commands/train/training.h"
#include "launcher/screen/printable.h"

namespace strata::launcher {

Checkpoints::Checkpoints(const runtime::Job& job, comm::World& world) : recipe_(job.recipe.checkpoint) {
  if (recipe_.dir) folder_.emplace(*recipe_.dir, recipe_.keep, *system_, world, note);
}

void Checkpoints::open(const runtime::Job& job, comm::World& world, runtime::Trainer& trainer,
                       const runtime::Start& start, control::Control& control) {
  saved_step_ = trainer.steps_done() > 0 ? trainer.steps_done() : -1;
  if (world.rank() == 0 && !trainer.done() && recipe_.stop_after > 0 && recipe_.stop_after <= trainer.steps_done())
    note(fmt::format("checkpoint.stop_after = {} has no effect: the run resumes after step {}", recipe_.stop_after,
                     trainer.steps_done()));
  if (!folder_) return;
  folder_->pass_over(start.damaged);
  folder_->on_published(
      [&control](std::int64_t step, const std::filesystem::path& path) { control.saved(step, path); });
  writer_.emplace(job, world, trainer.executor(), *folder_, trainer.base());
}

bool Checkpoints::after(const runtime::Trainer& trainer, bool asked) {
  const std::int64_t step = trainer.steps_done();
  if (folder_ && (asked || trainer.done() || (recipe_.every > 0 && step % recipe_.every == 0))) save(trainer);
  return recipe_.stop_after == step;
}

void Checkpoints::save(const runtime::Trainer& trainer) {
  if (saved_step_ == trainer.steps_done()) return;
  saved_step_ = trainer.steps_done();
  writer_->start(trainer.progress());
}

void Checkpoints::finish() {
  if (writer_) writer_->finish();
}

std::optional<runtime::CheckpointFigures> Checkpoints::figures() const {
  if (!writer_) return std::nullopt;
  return writer_->figures();
}

}  // namespace strata::launcher
