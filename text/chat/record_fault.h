#pragma once
#include <string>

#include "base/error.h"

namespace strata::text {

// A fault in a data set record; the caller adds the place.
struct RecordFault {
  std::string message;
  Exit code = Exit::corrupt;
};

}  // namespace strata::text
