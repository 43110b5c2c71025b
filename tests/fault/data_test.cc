// Wrong token files, found before the first step or during the run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>

#include "base/error.h"
#include "tests/dist/tiny_run.h"
#include "tests/runtime/data/token_folder.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class DataFault : public testing::Test {
 protected:
  TinyRun run_;
};

TEST_F(DataFault, IsFoundBeforeTheFirstStep) {
  const auto train = [&](const std::string& file) { return run(run_.train({"data.train=" + file})); };
  EXPECT_COMPLAINT(train(run_.file("none.bin")), Exit::usage, HasSubstr("none.bin"));
  EXPECT_COMPLAINT(train(run_.file("*.tok")), Exit::usage, HasSubstr("*.tok"));
  run_.folder().write("empty.bin", "");
  EXPECT_COMPLAINT(train(run_.file("empty.bin")), Exit::corrupt, AllOf(HasSubstr("empty.bin"), HasSubstr("empty")));
  run_.folder().write("odd.bin", std::string(101, '\1'));
  EXPECT_COMPLAINT(train(run_.file("odd.bin")), Exit::corrupt, AllOf(HasSubstr("odd.bin"), HasSubstr("offset 100")));
  run_.write_tokens("short.bin", 16);
  EXPECT_COMPLAINT(train(run_.file("short.bin")), Exit::usage, AllOf(HasSubstr("data.seq_len"), HasSubstr("17")));
  run_.write_tokens("told.bin", 100);
  run_.folder().write("told.bin.json", R"({"vocab_size": 97, "width": 2, "count": 101})");
  EXPECT_COMPLAINT(train(run_.file("told.bin")), Exit::corrupt, AllOf(HasSubstr("told.bin"), HasSubstr("101")));
}

TEST_F(DataFault, TokenBeyondTheVocabulary) {
  std::string bytes = run_.folder().read("tokens.bin");
  bytes[500] = 97;
  bytes[501] = 0;
  run_.folder().write("tokens.bin", bytes);
  EXPECT_COMPLAINT(
      run(under_mpirun(2, run_.train())), Exit::corrupt,
      AllOf(HasSubstr("tokens.bin"), HasSubstr("offset 500"), HasSubstr("below 97"), HasSubstr("found 97")));
}

TEST_F(DataFault, TokensOfAnotherTokenizerThanTheModels) {
  run_.folder().write("model/config.json",
                      R"({"model_type":"gpt2","n_layer":1,"n_embd":32,"n_head":2,"n_positions":16,"vocab_size":300})");
  run_.folder().write("model/tokenizer.json", "{}");
  run_.folder().write("text.txt", std::string(600, 'a'));
  EXPECT_EQ(run({kStrata, "tokenize", "--tokenizer", "byte", "-o", run_.file("bytes.bin"), run_.file("text.txt")}).code,
            0);
  const std::string bytes = run_.file("bytes.bin");
  const auto train = [&](const std::vector<std::string>& more) {
    auto command = run_.train_stored(run_.file("model"), {"model.init=random"});
    for (const std::string& set : more) command.insert(command.end(), {"--set", set});
    return run(command);
  };
  const auto refused = AllOf(HasSubstr("bytes.bin holds tokens of the tokenizer byte"), HasSubstr("any_tokenizer"));
  for (const char* key : {"data.train=", "data.validation="}) {
    const Outcome outcome = train({key + bytes});
    EXPECT_COMPLAINT(outcome, Exit::usage, refused);
    EXPECT_THAT(outcome.all(), testing::Not(HasSubstr("parameters"))) << "the run was described";
  }
  EXPECT_EQ(train({"data.train=" + bytes, "data.any_tokenizer=true"}).code, 0);
  auto eval = run_.train_stored(run_.file("model"), {"model.init=random", "data.validation=" + bytes});
  eval[1] = "eval";
  EXPECT_COMPLAINT(run(eval), Exit::usage, refused);
  eval.insert(eval.end(), {"--set", "data.any_tokenizer=true"});
  EXPECT_EQ(run(eval).code, 0);
}

// Faults in the files next to a token file, and recipes whose requirements the documents do not meet.
TEST_F(DataFault, DocumentsThatCannotBePacked) {
  const TokenFolder tokens(97);
  const auto path = [&](const std::string& name) { return (tokens.folder().path() / name).string(); };
  const auto train = [&](const std::string& file, const std::vector<std::string>& more = {}) {
    std::vector<std::string> sets = {"data.train=" + path(file), "data.packing=documents"};
    sets.insert(sets.end(), more.begin(), more.end());
    return run(run_.train(sets));
  };
  tokens.write("long.bin", {40, 3, 17});
  EXPECT_EQ(train("long.bin").code, 0);
  EXPECT_COMPLAINT(train("long.bin", {"data.long=refuse"}), Exit::usage,
                   AllOf(HasSubstr("2 of 3 documents are longer than data.seq_len = 16"), HasSubstr("data.long")));
  EXPECT_COMPLAINT(train("long.bin", {"data.train=" + run_.file("tokens.bin")}), Exit::usage,
                   AllOf(HasSubstr("tokens.bin does not say where documents begin"), HasSubstr("tokenize again")));
  EXPECT_COMPLAINT(train("long.bin", {fmt::format("data.train=[{{files=\"{}\", weight=0}}]", path("long.bin"))}),
                   Exit::usage, AllOf(HasSubstr("data.train"), HasSubstr("number above 0")));
  tokens.write("none.bin", {3, 3}, "100100");
  EXPECT_COMPLAINT(train("none.bin"), Exit::usage,
                   AllOf(HasSubstr("none of the 2 documents in"), HasSubstr("none.bin"), HasSubstr("counts")));
  tokens.write("mask.bin", {3, 3}, "011011");
  EXPECT_COMPLAINT(train("mask.bin", {"data.packing=stream"}), Exit::usage,
                   AllOf(HasSubstr("mask.bin has a mask"), HasSubstr("data.packing")));
  tokens.put("mask.bin.mask", "ab");
  EXPECT_COMPLAINT(train("mask.bin"), Exit::corrupt,
                   AllOf(HasSubstr("mask.bin.mask has 2 bytes"), HasSubstr("implies 1")));
  tokens.put("mask.bin.mask", "a");
  EXPECT_COMPLAINT(train("mask.bin"), Exit::corrupt, AllOf(HasSubstr("mask.bin.mask has the hash")));
  tokens.put("long.bin.documents", TokenFolder::bytes_of(std::vector<std::uint64_t>{0, 43, 40}));
  EXPECT_COMPLAINT(train("long.bin"), Exit::corrupt, AllOf(HasSubstr("long.bin.documents"), HasSubstr("hash")));
}

// During a run, only one rank finds the damage. It says so, and the others end with its exit code.
class DataFaultInMidRun : public testing::TestWithParam<const char*> {
 protected:
  // Two ranks read one file in order. It is changed after the first steps.
  Outcome train_and(const std::function<void()>& change) {
    run_.write_tokens("tokens.bin", 100'000);
    Running running(under_mpirun(2, run_.train({"training.max_steps=3000", "data.order=sequential", "zero.stage=3",
                                                std::string("comm.transport=") + GetParam()})));
    EXPECT_TRUE(running.wait_until([](const auto&, const std::string& err) { return err.find("step 2/") + 1; }));
    change();
    return running.wait();
  }
  TinyRun run_;
};
INSTANTIATE_TEST_SUITE_P(Transports, DataFaultInMidRun, testing::Values("shared", "messages"));

TEST_P(DataFaultInMidRun, BadTokenOnOneRank) {
  const Outcome outcome = train_and([&] {
    // This is sequence 4,001. Rank 1 reads the odd sequences.
    std::fstream file(run_.file("tokens.bin"), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * (16 * 4'001 + 3));
    file.write("\xff\xff", 2);
  });
  EXPECT_COMPLAINT(outcome, Exit::corrupt,
                   AllOf(HasSubstr("rank 1: "), HasSubstr("tokens.bin"),
                         HasSubstr(fmt::format("offset {}", 2 * (16 * 4'001 + 3))), HasSubstr("found 65535")));
}

TEST_P(DataFaultInMidRun, FileIsCut) {
  const Outcome outcome = train_and([&] { std::filesystem::resize_file(run_.file("tokens.bin"), 4096); });
  EXPECT_COMPLAINT(outcome, Exit::corrupt,
                   AllOf(HasSubstr("tokens.bin"), HasSubstr("offset 4096"), HasSubstr("expected 200000 bytes")));
}

}  // namespace
}  // namespace strata::tests
