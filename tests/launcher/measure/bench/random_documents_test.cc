#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "launcher/measure/bench/bench.h"
#include "runtime/data/files/tokens.h"
#include "tests/scratch_folder.h"

namespace strata::launcher {
namespace {

TEST(RandomDocumentsTest, MakesAValidTokenFile) {
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

TEST(RandomDocumentsTest, MakesValidLabelsOfEveryKind) {
  const tests::ScratchFolder folder;
  const std::filesystem::path path = folder.path() / "a.bin";
  for (const auto& [labels, begins] :
       {std::pair{RandomLabels{"single_label_classification", {"no", "yes"}}, "{\"label\": \""},
        {RandomLabels{"regression", {}}, "{\"label\": 0."},
        {RandomLabels{"multi_label_classification", {"a", "b"}}, "{\"labels\": [\""},
        {RandomLabels{"token_classification", {"a", "b"}}, "{\"labels\": [\""}}) {
    write_random_documents(path, 50, 64, 2000, labels);
    const runtime::TokenFile file(path, 50);
    file.check_all();
    ASSERT_TRUE(file.sidecar() && file.sidecar()->labels) << labels.problem;
    EXPECT_EQ(file.sidecar()->labels->problem, labels.problem);
    EXPECT_EQ(file.sidecar()->labels->names, labels.names);
    const std::string lines = folder.read("a.bin.labels.jsonl");
    EXPECT_TRUE(lines.starts_with(begins)) << lines.substr(0, 40);
    const auto documents = file.sidecar()->documents->count;
    EXPECT_EQ(static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '\n')), documents);
    const auto names = static_cast<std::uint64_t>(std::count(lines.begin(), lines.end(), '"'));
    if (labels.problem == "token_classification") {
      EXPECT_EQ(names, 2 * (documents + file.count()));
    }
  }
}

}  // namespace
}  // namespace strata::launcher
