#pragma once
#include <string>

namespace strata {

// Throws for a write that the system refused with this errno; `what` is the sentence up to the reason, "FILE cannot be
// written". No room (a full disk, a quota, a limit of a file's size) is Error{does_not_fit} and says what to do, as
// trying again changes nothing. A link in the file's place (ELOOP) is Error{usage}. Anything else is Error{failed}.
[[noreturn]] void refused_write(const std::string& what, int error);

}  // namespace strata
