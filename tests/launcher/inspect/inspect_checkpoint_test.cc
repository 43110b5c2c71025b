#include <gmock/gmock.h>

#include <cmath>
#include <sstream>
#include <utility>

#include "launcher/inspect/inspect.h"
#include "tests/failure.h"
#include "tests/runtime/cut_checkpoint.h"
#include "tests/runtime/saved_run.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

TEST(InspectCheckpointTest, ShowsAndCompares) {
  const runtime::SavedRun run;
  run.run(2, run.sets(2, {"zero.stage=3", "checkpoint.keep=9"}), 3, {2, 3});
  std::ostringstream out;
  EXPECT_EQ(inspect(run.checkpoints(), Tensors::all, out), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step-00000003: step 3"), HasSubstr("gpt2, "), HasSubstr("2 files of 2 ranks"),
                               HasSubstr("192 tokens, next micro-batch 12"),
                               ContainsRegex("wte.weight +master +F32 +.130, 48. .* 0  ok\n"),
                               ContainsRegex("wte.weight +moment2 +F32 "), HasSubstr("every checksum holds")));
  out.str("");
  EXPECT_EQ(inspect(run.checkpoints(), Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step-00000003: step 3"), Not(HasSubstr("wte.weight")), HasSubstr("--tensors"),
                               HasSubstr("every checksum holds, every number is finite")));
  // The state does not depend on the number of ranks that wrote it.
  const auto one = run.checkpoints() / "step-00000003";
  run.run(1, run.sets(1, {"checkpoint.keep=9", "checkpoint.resume=none"}), 3, {3});
  const auto other = runtime::list_checkpoints(run.checkpoints())[0].path;
  ASSERT_NE(one, other);
  out.str("");
  EXPECT_EQ(inspect(other, Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), HasSubstr("; 1 file of 1 rank, "));
  out.str("");
  inspect(one, other, out);
  EXPECT_THAT(out.str(), testing::StartsWith("0 of "));
  out.str("");
  inspect(run.checkpoints() / "step-00000002", other, out);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step 2 and step 3"),
                               ContainsRegex("wte.weight +master +first at element [0-9]+: .* and ")));
}

// Boxes are joined, so that a tensor's numbers are compared in its own order.
TEST(InspectCheckpointTest, BoxesAreTheSameTensors) {
  const runtime::SavedRun run;
  run.run(2, run.sets(2, {"checkpoint.keep=9"}), 3, {2, 3});
  const auto cut = run.folder().path() / "cut";
  runtime::cut_columns(run.checkpoints() / "step-00000003", cut);
  std::ostringstream out;
  inspect(run.checkpoints() / "step-00000003", cut, out);
  EXPECT_THAT(out.str(), testing::StartsWith("0 of "));
  out.str("");
  inspect(run.checkpoints() / "step-00000002", cut, out);
  EXPECT_THAT(out.str(), ContainsRegex("c_fc.weight +master +first at element 0: "));
  const auto lines = [&](const std::filesystem::path& path) {
    std::ostringstream text;
    EXPECT_EQ(inspect(path, Tensors::all, text), 0);
    return text.str().substr(text.str().find("\ntensor"));
  };
  EXPECT_EQ(lines(cut), lines(run.checkpoints() / "step-00000003"));
}

// Lists all checkpoints of a folder, then shows the newest undamaged one.
TEST(InspectCheckpointTest, ListsTheCheckpointsOfAFolder) {
  const runtime::SavedRun run;
  run.folder().write("v.bin", run.folder().read("tokens.bin").substr(0, 400));
  run.run(1,
          run.sets(1, {"data.validation=" + (run.folder().path() / "v.bin").string(), "evaluation.every=1",
                       "checkpoint.keep=9", "evaluation.greater_is_better=true"}),
          3, {1, 2, 3});
  std::ostringstream out;
  EXPECT_EQ(inspect(run.checkpoints(), Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), AllOf(testing::StartsWith("3 checkpoints in " + run.checkpoints().string()),
                               ContainsRegex("\n  step-00000003\n  step-00000002\n  step-00000001  the best: eval_loss "
                                             "[0-9.]+\ncheckpoint .*step-00000003: step 3")));
  std::filesystem::resize_file(run.checkpoints() / "step-00000003/rank-00000-of-00001.safetensors", 100);
  out.str("");
  EXPECT_EQ(inspect(run.checkpoints(), Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), AllOf(HasSubstr("step-00000003  DAMAGED\n"), HasSubstr("step-00000002: step 2")));
  out.str("");
  EXPECT_EQ(inspect(run.checkpoints() / "step-00000001", Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), Not(HasSubstr("checkpoints in")));
}

TEST(InspectCheckpointTest, NamesTheBestCheckpoint) {
  const runtime::SavedRun run;
  run.folder().write("v.bin", run.folder().read("tokens.bin").substr(0, 400));
  const std::string data = "data.validation=" + (run.folder().path() / "v.bin").string();
  run.run(1,
          run.sets(1, {data, "evaluation.every=1", "checkpoint.keep=1", "checkpoint.keep_best=true",
                       "evaluation.greater_is_better=true"}),
          3, {1, 2, 3});
  std::ostringstream out;
  EXPECT_EQ(inspect(run.checkpoints(), Tensors::wrong, out), 0);
  EXPECT_THAT(out.str(), ContainsRegex("best: eval_loss [0-9.]+ after step [0-9]+ \\("));
}

// After one step, 8-bit moments are the fp32 ones rounded to codes, which changes large values by up to a twentieth.
TEST(InspectCheckpointTest, ShowsTheValuesOf8BitMoments) {
  const auto shown = [](const std::string& moments) {
    const runtime::SavedRun run;
    run.run(2, run.sets(2, {"zero.stage=3", "optimizer.moments=" + moments}), 1, {1});
    std::ostringstream out;
    EXPECT_EQ(inspect(run.checkpoints(), Tensors::all, out), 0);
    return out.str();
  };
  const std::string plain = shown("fp32"), coded = shown("8bit");
  EXPECT_THAT(coded, AllOf(ContainsRegex("c_fc.weight +moment1 +8bit "), ContainsRegex("wte.weight +moment1 +F32 ")));
  // Mean and deviation come after name, kind, dtype and shape, which is [48, 192].
  const auto figures = [](const std::string& text, const std::string& wanted) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string name, kind, dtype, rows, columns;
      double mean = 0, deviation = 0;
      if (words >> name >> kind >> dtype >> rows >> columns >> mean >> deviation && kind == wanted &&
          name == "transformer.h.1.mlp.c_fc.weight")
        return std::pair(mean, deviation);
    }
    ADD_FAILURE() << text;
    return std::pair(0.0, 0.0);
  };
  const auto [mean1, deviation1] = figures(plain, "moment1");
  EXPECT_NEAR(figures(coded, "moment1").first, mean1, 0.01 * deviation1);
  EXPECT_NEAR(figures(coded, "moment1").second, deviation1, 0.05 * deviation1);
  const auto [mean2, deviation2] = figures(plain, "moment2");
  EXPECT_NEAR(figures(coded, "moment2").first, mean2, 0.05 * mean2);
  EXPECT_NEAR(figures(coded, "moment2").second, deviation2, 0.05 * deviation2);

  const runtime::SavedRun run;
  run.run(1, run.sets(1, {"optimizer.moments=8bit", "checkpoint.keep=9"}), 2, {1, 2});
  std::ostringstream out;
  inspect(run.checkpoints() / "step-00000001", run.checkpoints() / "step-00000002", out);
  EXPECT_THAT(out.str(), ContainsRegex("h.0.mlp.c_fc.weight +moment1 +first at element 0\n"))
      << "the largest magnitude of the first block";
}

TEST(InspectCheckpointTest, NamesDamagedTensors) {
  const runtime::SavedRun run;
  run.run(2, run.sets(2, {"zero.stage=3"}), 2, {2});
  const auto file = run.checkpoints() / "step-00000002/rank-00001-of-00002.safetensors";
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  bytes.seekp(-1, std::ios::end).put('\x7f');
  bytes.close();
  std::ostringstream out;
  EXPECT_FAILURE(inspect(file.parent_path(), Tensors::all, out), Exit::corrupt,
                 AllOf(HasSubstr("rank-00001"), HasSubstr("(1 line above is damaged)")));
  EXPECT_THAT(out.str(), ContainsRegex("c_proj.bias +moment2 .* DAMAGED"));
  out.str("");
  EXPECT_FAILURE(inspect(file.parent_path(), Tensors::wrong, out), Exit::corrupt,
                 HasSubstr("(1 line above is damaged)"));
  EXPECT_THAT(out.str(), AllOf(ContainsRegex("c_proj.bias +moment2 .* DAMAGED"), Not(HasSubstr("  ok\n"))));
  // A folder stands for its newest undamaged checkpoint. Here there is none.
  testing::internal::CaptureStderr();
  EXPECT_FAILURE(inspect(run.checkpoints(), Tensors::all, out), Exit::corrupt,
                 HasSubstr("its only checkpoint is not complete"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("passed over "), HasSubstr("rank-00001"), HasSubstr("expected checksum")));
}

TEST(StatisticsTest, MergesPieces) {
  Statistics all;
  std::vector<float> piece;
  double mean = 0, squares = 0;
  constexpr int kCount = 1000;
  for (int i = 0; i < kCount; ++i) mean += (1e4 + i % 7) / kCount;
  for (int i = 0; i < kCount; ++i) squares += std::pow(1e4 + i % 7 - mean, 2) / kCount;
  for (int i = 0; i < kCount; ++i) {
    piece.push_back(static_cast<float>(1e4 + i % 7));
    if (i % 90 == 0) {
      piece.push_back(NAN);
      all.add(piece);
      piece.clear();
    }
  }
  all.add(piece);
  EXPECT_NEAR(all.mean(), mean, 1e-8);  // doubles, of sums near 1e7
  EXPECT_NEAR(all.deviation(), std::sqrt(squares), 1e-8);
  EXPECT_EQ(all.non_finite(), 12u);
}

}  // namespace
}  // namespace strata::launcher
