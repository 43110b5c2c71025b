#pragma once
#include <filesystem>
#include <string>

namespace strata::launcher {

struct ExportOptions {
  std::filesystem::path from;  // a checkpoint, a folder of checkpoints, or a Hugging Face directory
  std::filesystem::path to;
  std::string dtype = "fp32";
};

// `strata export`: a Hugging Face directory that transformers loads as it is. Returns the exit code; throws Error.
int export_model(const ExportOptions& options);

}  // namespace strata::launcher
