#pragma once
#include <chrono>
#include <cstdint>
#include <cstdio>

#include "runtime/job.h"
#include "runtime/trainer.h"

namespace strata::launcher {

// What a person sees while a run goes on, on rank 0's stderr: one live line on a terminal, a line a step elsewhere,
// without control codes.
class Progress {
 public:
  Progress(const runtime::Job& job, std::FILE* out);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(const runtime::StepReport& report);

 private:
  const runtime::Job& job_;
  std::FILE* out_;
  bool live_;
  bool open_ = false;  // the live line has no line break yet
  double smooth_ms_ = 0;
};

}  // namespace strata::launcher
