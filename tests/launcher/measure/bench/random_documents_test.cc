#include "launcher/measure/bench/random_documents.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "runtime/data/files/tokens.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

TEST(RandomDocumentsTest, ATokenFileThatARunTakes) {
  const tests::ScratchFolder folder;
  for (const std::int64_t vocabulary : {50, 70000}) {
    write_random_documents(folder.path() / "a.bin", vocabulary, 64, 5000);
    write_random_documents(folder.path() / "b.bin", vocabulary, 64, 5000);
    EXPECT_EQ(folder.read("a.bin"), folder.read("b.bin")) << "the same every time";
    const runtime::TokenFile file(folder.path() / "a.bin", vocabulary);
    file.check_all();
    EXPECT_GE(file.count(), 5000u);
    EXPECT_LT(file.count(), 5064u);
    ASSERT_TRUE(file.sidecar() && file.sidecar()->documents);
    const double mean = static_cast<double>(file.count()) / static_cast<double>(file.sidecar()->documents->count);
    EXPECT_NEAR(mean, (8 + 64) / 2.0, 6) << "of lengths from 8 to 64";
    std::vector<std::uint32_t> tokens(file.count());
    file.read(0, tokens);
    EXPECT_GT(*std::max_element(tokens.begin(), tokens.end()), vocabulary * 9 / 10);
  }
}

}  // namespace
}  // namespace strata::launcher
