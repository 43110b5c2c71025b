// A profiler's view of device::Range. This program acts as one, by NVTX's symbol for injections that are linked in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#define NVTX_NO_IMPL  // types only: the weak symbol that it would define here is defined below
#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

#include "device/lane.h"

namespace {

std::vector<std::string>& seen() {
  static std::vector<std::string> ranges;
  return ranges;
}

int push(const char* name) {
  seen().emplace_back(name);
  return 0;
}
int pop() {
  seen().emplace_back("end");
  return 0;
}

int inject(NvtxGetExportTableFunc_t export_table) {
  const auto* callbacks = static_cast<const NvtxExportTableCallbacks*>(export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (!callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count)) return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

}  // namespace

extern "C" {
extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = inject;
}

namespace strata::device {
namespace {

TEST(Range, AppearsInAProfilerUnderItsName) {
  AbortToken abort;
  Lane lane("lane", 1, 0, abort, Device{.kind = Kind::cuda}), host("host", 1, 0, abort);
  seen().clear();
  {
    const Range step(lane, "step");
    const Range task(lane, "forward block 3, micro-batch 1");
    const Range none(host, "of the host");
  }
  EXPECT_THAT(seen(), ::testing::ElementsAre("step", "forward block 3, micro-batch 1", "end", "end"));
}

}  // namespace
}  // namespace strata::device
