#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "base/abort.h"
#include "device/memory.h"
#include "offload/swap.h"
#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::offload {

inline const std::array<IoMode, 8> kIoModes = {{
    {Engine::io_uring, true, true},
    {Engine::io_uring, true, false},
    {Engine::io_uring, false, true},
    {Engine::io_uring, false, false},
    {Engine::libaio, true, false},
    {Engine::libaio, false, false},
    {Engine::threads, true, false},
    {Engine::threads, false, false},
}};

inline IoOptions force(const IoMode& mode) {
  IoOptions options;
  options.engine = mode.engine;
  options.direct = mode.direct;
  if (mode.engine == Engine::io_uring) options.registered = mode.registered;
  return options;
}

// Tests with a forced mode. Skipped, with the engine's own reason, if the mode does not work on this machine.
class InIoMode : public testing::TestWithParam<IoMode> {
 protected:
  void SetUp() override {
    options_ = force(GetParam());
    options_.folders = {folder_.path()};
    const Error error = tests::failure_of([&] { Swap(options_, kBlock, 0, abort_); });
    if (error.code() != Exit::done) GTEST_SKIP() << error.what();
  }
  tests::ScratchFolder folder_;
  AbortToken abort_;
  IoOptions options_;
};

inline std::string name_of_mode(const testing::TestParamInfo<IoMode>& info) {
  std::string name = to_string(info.param);
  std::erase_if(name, [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); });
  return name;
}

// Bytes that differ from page to page and from seed to seed.
inline void fill(std::span<std::byte> bytes, std::uint64_t seed) {
  std::uint64_t state = seed * 0x9e3779b97f4a7c15u + 1;
  for (std::size_t at = 0; at + 8 <= bytes.size(); at += 8) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    std::memcpy(bytes.data() + at, &state, 8);
  }
}

}  // namespace strata::offload
