#include "text/template/values/meter.h"

#include <limits>

namespace strata::text::jinja {

void Meter::step(std::uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps) throw Fault("it does not end within {} steps", limits_.steps);
}

void Meter::grown_to(std::uint64_t bytes) const {
  if (bytes > limits_.bytes || bytes_ + bytes > limits_.bytes)
    throw Fault("it creates more than {} bytes of text and lists", limits_.bytes);
}

void Meter::take(std::uint64_t bytes) {
  grown_to(bytes);
  bytes_ += bytes;
  read(bytes);
}

void Meter::take(std::uint64_t times, std::uint64_t bytes) {
  std::uint64_t all = 0;
  take(__builtin_mul_overflow(times, bytes, &all) ? std::numeric_limits<std::uint64_t>::max() : all);
}

void Meter::enter() {
  if (++depth_ > limits_.depth) {
    --depth_;
    throw Fault("it is nested more than {} levels deep, perhaps by a macro that calls itself forever", limits_.depth);
  }
}

}  // namespace strata::text::jinja
