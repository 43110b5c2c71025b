#include "device/algorithm_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::device {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const ProductShape kShape{1024, 4096, 768, false, true, 768, 768, 4096, DType::bf16, DType::bf16, true, false};
const ProductShape kGelu = [] {
  ProductShape s = kShape;
  s.epilogue = Epilogue::gelu_tanh;
  return s;
}();

AlgorithmTable some_table() {
  AlgorithmTable table("NVIDIA H200 (132 SMs), cuBLASLt 13.1.0");
  table.set({kShape, 16}, std::string("\x00\xff: \n", 5));
  table.set({kGelu, 16}, std::string(AlgorithmTable::kApart));
  return table;
}

TEST(AlgorithmTable, TextReadsBackUnchanged) {
  const AlgorithmTable table = some_table(), read = AlgorithmTable::parse(table.text(), "text");
  EXPECT_EQ(read.text(), table.text());
  EXPECT_EQ(read.hash(), table.hash());
  EXPECT_EQ(read.machine(), table.machine());
  ASSERT_NE(read.find({kShape, 16}), nullptr);
  EXPECT_EQ(*read.find({kShape, 16}), std::string("\x00\xff: \n", 5));
  EXPECT_EQ(*read.find({kGelu, 16}), AlgorithmTable::kApart);
}

TEST(AlgorithmTable, TextDoesNotDependOnTheOrderOfEntries) {
  AlgorithmTable other(some_table().machine());
  other.set({kGelu, 16}, std::string(AlgorithmTable::kApart));
  other.set({kShape, 16}, "old");
  EXPECT_NE(other.hash(), some_table().hash());
  other.set({kShape, 16}, std::string("\x00\xff: \n", 5));
  EXPECT_EQ(other.hash(), some_table().hash());
  EXPECT_EQ(other.size(), 2u);
}

// Products that differ in anything by which a library may choose have different entries.
TEST(AlgorithmTable, EveryPartOfAProductCounts) {
  std::vector<AlgorithmKey> keys(19, {kShape, 16});
  keys[1].shape.m += 1;
  keys[2].shape.n += 1;
  keys[3].shape.k += 1;
  keys[4].shape.transpose_a = true;
  keys[5].shape.transpose_b = false;
  keys[6].shape.lda += 1;
  keys[7].shape.ldb += 1;
  keys[8].shape.ldc += 1;
  keys[9].shape.in = DType::fp16;
  keys[10].shape.out = DType::fp32;
  keys[11].shape.bias = false;
  keys[12].shape.accumulate = true;
  keys[13].shape.epilogue = Epilogue::gelu_tanh;
  keys[14].alignment = 8;
  keys[15].shape.in = keys[15].shape.out = DType::fp32;
  keys[16].shape.epilogue = Epilogue::gelu_tanh_gradient;
  keys[17].shape.epilogue = Epilogue::sums_a;
  keys[18].shape.epilogue = Epilogue::sums_b;
  AlgorithmTable table("machine");
  for (const AlgorithmKey& key : keys) table.set(key, "algorithm");
  EXPECT_EQ(table.size(), keys.size());
}

TEST(AlgorithmTable, DamagedTextIsRefusedByLine) {
  const auto parse = [](const std::string& text) { (void)AlgorithmTable::parse(text, "file.txt"); };
  const std::string text = some_table().text();
  EXPECT_FAILURE(parse(""), Exit::corrupt, HasSubstr("file.txt is not a table"));
  EXPECT_FAILURE(parse("something else\nmachine\n"), Exit::corrupt, HasSubstr("file.txt is not a table"));
  EXPECT_FAILURE(parse(text.substr(0, text.size() - 1)), Exit::corrupt, HasSubstr("file.txt:4"));
  EXPECT_FAILURE(parse(text + "a b c: 0\n"), Exit::corrupt, HasSubstr("file.txt:5"));
  EXPECT_FAILURE(parse(text + "a b c: zz\n"), Exit::corrupt, HasSubstr("file.txt:5"));
  EXPECT_FAILURE(parse(text + "no algorithm\n"), Exit::corrupt, HasSubstr("file.txt:5"));
}

TEST(AlgorithmTable, IsKeptInAFile) {
  const tests::ScratchFolder folder;
  const auto file = folder.path() / "cache" / "table.txt";
  const AlgorithmTable table = some_table();
  EXPECT_EQ(load_algorithms(file, table.machine()).size(), 0u);
  save_algorithms(table, file);
  EXPECT_EQ(load_algorithms(file, table.machine()).text(), table.text());
  EXPECT_FAILURE((void)load_algorithms(file, "NVIDIA A100"), Exit::usage,
                 AllOf(HasSubstr("of NVIDIA H200"), HasSubstr("this is NVIDIA A100")));
  EXPECT_FAILURE(save_algorithms(table, file / "below" / "a-file"), Exit::failed, HasSubstr("STRATA_ALGORITHMS"));
}

TEST(AlgorithmTable, AFullDiskIsExitCodeThree) {
  const tests::ScratchFolder folder;
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{.rlim_cur = 10, .rlim_max = before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Error error = tests::failure_of([&] { save_algorithms(some_table(), folder.path() / "table.txt"); });
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(error.code(), Exit::does_not_fit);
  EXPECT_THAT(error.what(), AllOf(HasSubstr("table.txt cannot be written"), HasSubstr("STRATA_ALGORITHMS")));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "the unfinished file is removed";
}

TEST(AlgorithmTable, FileIsNamedOrInTheUsersCache) {
  ASSERT_EQ(setenv("STRATA_ALGORITHMS", "/some/file", 1), 0);
  EXPECT_EQ(algorithm_file("NVIDIA H200"), "/some/file");
  ASSERT_EQ(unsetenv("STRATA_ALGORITHMS"), 0);
  ASSERT_EQ(setenv("XDG_CACHE_HOME", "/cache", 1), 0);
  EXPECT_EQ(algorithm_file("NVIDIA H200 (132 SMs), cuBLASLt 13.1.0"),
            "/cache/strata/algorithms/NVIDIA-H200-132-SMs-cuBLASLt-13.1.0.txt");
  ASSERT_EQ(unsetenv("XDG_CACHE_HOME"), 0);
}

TEST(AlgorithmTable, CpuHasNothingToChoose) {
  EXPECT_EQ(algorithm_machine({}), "");
  AlgorithmTable table("");
  search_algorithms({}, std::vector{kShape}, table);
  EXPECT_EQ(table.size(), 0u);
}

}  // namespace
}  // namespace strata::device
