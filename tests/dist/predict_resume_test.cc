// Interrupted predictions, and the files next to their output.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <simdjson.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <thread>
#include <utility>

#include "base/error.h"
#include "tests/dist/classifier_case.h"

namespace strata::tests {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::HasSubstr;

class PredictResume : public ClassifierCase {};

// predict does not replace an existing OUT.part, so a second name of the file keeps its final content.
TEST_F(PredictResume, ContinuesFromFinishedResults) {
  learn("one", {"--labels", "label"});
  folder_.write("out.jsonl.part", "");
  fs::create_hard_link(file("out.jsonl.part"), file("kept"));
  const auto all = predicted("one");
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes")));
  const std::string whole = folder_.read("kept");
  ASSERT_GT(whole.size(), kTexts * 3 * sizeof(float));

  for (const int ranks : {1, 2}) {
    folder_.write("out.jsonl.part", std::string_view(whole).substr(0, whole.size() * 2 / 3));  // within a record
    EXPECT_EQ(predicted("one", {}, "texts.jsonl", ranks), all);
    EXPECT_THAT(said_, HasSubstr("resumes after ")) << ranks;
  }
  // The content of OUT.part is used. Here it is complete, and its last score was changed.
  std::string changed = whole;
  const float score = 9;
  changed.replace(changed.size() - sizeof score, sizeof score, reinterpret_cast<const char*>(&score), sizeof score);
  folder_.write("out.jsonl.part", changed);
  EXPECT_NE(predicted("one"), all);

  // With other texts, or micro-batches of another size, predict starts over.
  folder_.write("out.jsonl.part", changed);
  EXPECT_EQ(predicted("one", {"--set", "training.micro_batch_size=2"}), all);
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes")));
  folder_.write("out.jsonl.part", changed);
  folder_.write("alone.jsonl", lines_[3] + "\n");
  EXPECT_EQ(predicted("one", {}, "alone.jsonl"), std::vector{all[3]});
}

// Files that somebody else wrote are neither replaced nor deleted.
TEST_F(PredictResume, DoesNotTouchOtherFilesNextToOut) {
  learn("one", {"--labels", "label"});
  for (const char* ending : {".tokens", ".tokens.json", ".part"}) {
    const std::string name = std::string("out.jsonl") + ending;
    folder_.write(name, "mine");
    EXPECT_COMPLAINT(run(under_mpirun(2, asked("one", "texts.jsonl", "out.jsonl", {"--force"}))), Exit::usage,
                     AllOf(HasSubstr(name), HasSubstr("did not write it")));
    EXPECT_EQ(folder_.read(name), "mine");
    fs::remove(file(name));
  }
  done(run(asked("one", "texts.jsonl", "out.jsonl")));
}

// A stopped prediction keeps its finished work, exits as a run that should be restarted, and resumes to the same bytes.
// If another model is at the same path, it starts over.
TEST_F(PredictResume, ResumesAfterAStop) {
  learn("one", {"--labels", "label"});
  std::string many;
  for (int i = 0; i < 60'000; ++i) many += lines_[static_cast<std::size_t>(i % kTexts)] + "\n";
  folder_.write("many.jsonl", many);
  const auto part = [&] {
    std::error_code none;
    const auto size = fs::file_size(file("out.jsonl.part"), none);
    return none ? std::uintmax_t{0} : size;
  };
  const auto stopped = [&](int signal) {
    Running live(asked("one", "many.jsonl", "out.jsonl"));
    const auto before = part();
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (part() < before + 4096 && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    live.send(signal);
    return live.wait();
  };
  for (const int signal : {SIGTERM, SIGINT}) {
    EXPECT_COMPLAINT(stopped(signal), Exit::requeue,
                     AllOf(HasSubstr("stopped on request"), HasSubstr("out.jsonl.part"), HasSubstr("same command")));
    EXPECT_FALSE(fs::exists(file("out.jsonl")));
    EXPECT_FALSE(fs::exists(file("out.jsonl.tokens")));
  }
  const std::string kept = folder_.read("out.jsonl.part");
  const auto all = predicted("one", {}, "many.jsonl");
  EXPECT_THAT(said_, HasSubstr("resumes after "));
  ASSERT_EQ(all.size(), 60'000u);
  const auto few = predicted("one");
  for (const std::size_t i : {0u, 39u, 40u, 59'999u}) EXPECT_EQ(all[i], few[i % kTexts]) << i;

  done(run(command("train", "one", {"training.max_steps=4", "checkpoint.keep=1"})));
  folder_.write("out.jsonl.part", kept);
  const auto later = predicted("one", {}, "many.jsonl");
  EXPECT_THAT(said_, testing::Not(HasSubstr("resumes after ")));
  EXPECT_NE(later, all);
}

// A part is continued only if that changes no bits. Otherwise predict starts over.
TEST_F(PredictResume, ContinuesOnlyWithTheSameBits) {
  learn("one", {"--labels", "label"});
  folder_.write("out.jsonl.part", "");
  fs::create_hard_link(file("out.jsonl.part"), file("kept"));
  const auto all = predicted("one");
  const std::string whole = folder_.read("kept");
  const auto again = [&](const std::vector<std::string>& options) {
    folder_.write("out.jsonl.part", std::string_view(whole).substr(0, whole.size() * 2 / 3));
    const auto lines = predicted("one", options);
    return std::pair{lines, said_.find("resumes after ") != std::string::npos};
  };
  EXPECT_EQ(again({}), std::pair(all, true));
  EXPECT_EQ(again({"--set", "zero.stage=3"}), std::pair(all, true)) << "where weights lie";
  EXPECT_EQ(again({"--set", "optimizer.learning_rate=1"}), std::pair(all, true));
  EXPECT_FALSE(again({"--set", "data.order=sequential"}).second);
  EXPECT_FALSE(again({"--set", "training.precision=bf16"}).second);
  // The seed does not affect predictions, but a user who sets it wants another run.
  EXPECT_FALSE(again({"--set", "training.seed=9"}).second);
  ASSERT_EQ(setenv("STRATA_CPU_ISA", "avx2", 1), 0);
  const bool avx2 = again({}).second;
  ASSERT_EQ(unsetenv("STRATA_CPU_ISA"), 0);
  EXPECT_EQ(avx2, !__builtin_cpu_supports("avx512f")) << "kernels of another instruction set round differently";
  EXPECT_COMPLAINT(run(asked("one", "texts.jsonl", "other.jsonl", {"--set", "evaluation.max_sequences=1"})),
                   Exit::usage, HasSubstr("predictions, which cover every text"));
}

}  // namespace
}  // namespace strata::tests
