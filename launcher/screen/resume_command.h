#pragma once
#include <string>
#include <string_view>

namespace strata::launcher {

// The variable in which `strata launch` gives its ranks the checkpoint.resume of its own command line: at a restart it
// adds one that nobody typed.
inline constexpr const char* kTypedResume = "STRATA_LAUNCH_RESUME";

// What a user has to run so that a stopped run goes on: "the same command", with what has to be added to it. `resume`:
// checkpoint.resume of this process's command line.
std::string resume_command(std::string_view resume);

}  // namespace strata::launcher
