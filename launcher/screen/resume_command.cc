#include "launcher/screen/resume_command.h"

#include <cstdlib>

namespace strata::launcher {

std::string resume_command(std::string_view resume) {
  if (const char* typed = std::getenv(kTypedResume)) resume = typed;
  // Any other value would start where the run did.
  return resume == "auto" ? "the same command" : "the same command with --set checkpoint.resume=auto";
}

}  // namespace strata::launcher
