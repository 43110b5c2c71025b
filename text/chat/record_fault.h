#pragma once
#include <string>

#include "base/error.h"

namespace strata::text {

// A line of a data set that is not what it should be, without its place.
struct RecordFault {
  std::string message;
  Exit code = Exit::corrupt;
};

}  // namespace strata::text
