#pragma once

namespace strata {

// Seconds since 1970, of the clock that people and other machines go by: it may jump.
double seconds_since_epoch();

}  // namespace strata
