#pragma once
#include <string>

namespace strata::launcher {

// A loss, a norm or a metric for people: with so many digits after the point, "3.2958"; from 1e9 on by its power of
// ten, "2.354e+48", as a diverged run's have dozens of digits.
std::string value_text(double value, int digits);

}  // namespace strata::launcher
