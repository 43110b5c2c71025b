#include "models/files/safetensors.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <limits>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::models {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string file_of(const std::string& header, const std::string& data, std::optional<std::uint64_t> length = {}) {
  const std::uint64_t n = length.value_or(header.size());
  std::string out(8, '\0');
  std::memcpy(out.data(), &n, 8);
  return out + header + data;
}

template <typename T>
std::string bytes_of(std::initializer_list<T> values) {
  return {reinterpret_cast<const char*>(values.begin()), values.size() * sizeof(T)};
}

class SafetensorsTest : public ::testing::Test {
 protected:
  void expect_corrupt(const std::string& bytes, const std::string& expected, const std::string& found) {
    const auto file = folder_.write("bad.safetensors", bytes);
    EXPECT_FAILURE(Safetensors::open(file), Exit::corrupt,
                   AllOf(HasSubstr(file.string()), HasSubstr("offset"), HasSubstr("expected"), HasSubstr(expected),
                         HasSubstr("found"), HasSubstr(found)));
  }
  tests::ScratchFolder folder_;
};

TEST_F(SafetensorsTest, ReadsEveryTypeAndShape) {
  const auto file = folder_.write(
      "model.safetensors",
      file_of(R"({"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},)"
              R"("h":{"dtype":"F16","shape":[1],"data_offsets":[16,18]},"b":{"dtype":"BF16","shape":[2],)"
              R"("data_offsets":[18,22]},"none":{"dtype":"F32","shape":[0,7],"data_offsets":[22,22]},)"
              R"("step":{"dtype":"I64","shape":[],"data_offsets":[22,30]}}   )",
              bytes_of<float>({1, -2, 3, 0.5f}) + bytes_of<std::uint16_t>({0x3c00, 0x4049, 0x7f80}) +
                  bytes_of<std::int64_t>({7})));
  const auto read = Safetensors::open(folder_.path());
  ASSERT_EQ(read.tensors().size(), 5u);
  EXPECT_EQ(read.tensors()[0].name, "b");  // in byte order
  EXPECT_EQ(read.metadata().at("format"), "pt");
  EXPECT_EQ(read.file_bytes(), std::filesystem::file_size(file));

  const std::uint64_t square[] = {2, 2};
  const StoredTensor& w = read.require("w", square);
  std::vector<float> values(3);
  read_elements(w, 1, values);
  EXPECT_EQ(values, (std::vector<float>{-2, 3, 0.5f}));
  values.resize(1);
  read_elements(*read.find("h"), 0, values);
  EXPECT_EQ(values[0], 1.0f);
  values.resize(2);
  read_elements(*read.find("b"), 0, values);
  EXPECT_EQ(values[0], 3.140625f);
  EXPECT_EQ(values[1], std::numeric_limits<float>::infinity());
  EXPECT_EQ(read.find("none")->elements(), 0u);
  EXPECT_EQ(read.find("step")->elements(), 1u);
  EXPECT_EQ(read.find("step")->type, std::nullopt);
  EXPECT_EQ(read.find("wrong"), nullptr);
}

TEST_F(SafetensorsTest, DoublesAreRoundedOnce) {
  // Cases: above the middle between two floats, exactly there (to even), and beyond the range.
  const double middle = 1 + 0x1p-24;
  folder_.write("model.safetensors", file_of(R"({"d":{"dtype":"F64","shape":[5],"data_offsets":[0,40]},)"
                                             R"("f":{"dtype":"F32","shape":[5],"data_offsets":[40,60]}})",
                                             bytes_of<double>({-0.1, middle, middle + 0x1p-50, 1e-46, 1e300}) +
                                                 bytes_of<float>({-0.1f, 1, 1 + 0x1p-23f, 0, 7})));
  const auto read = Safetensors::open(folder_.path());
  const std::uint64_t five[] = {5};
  std::vector<float> values(4);
  read_elements(read.require("d", five), 1, values);
  EXPECT_EQ(values, (std::vector<float>{1, 1 + 0x1p-23f, 0, std::numeric_limits<float>::infinity()}));
  EXPECT_FALSE(same_values(*read.find("d"), *read.find("f")));
}

TEST_F(SafetensorsTest, ValuesAreTheSameInAnotherDtype) {
  folder_.write("model.safetensors",
                file_of(R"({"b":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},)"
                        R"("f":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
                        R"("g":{"dtype":"F32","shape":[2],"data_offsets":[12,20]},)"
                        R"("h":{"dtype":"F32","shape":[1,2],"data_offsets":[20,28]}})",
                        bytes_of<std::uint16_t>({0x3f80, 0xc000}) + bytes_of<float>({1, -2, 1, -2.5f, 1, -2})));
  const auto read = Safetensors::open(folder_.path());
  EXPECT_TRUE(same_values(*read.find("b"), *read.find("f")));
  EXPECT_FALSE(same_values(*read.find("f"), *read.find("g")));
  EXPECT_FALSE(same_values(*read.find("f"), *read.find("h")));
}

TEST_F(SafetensorsTest, ErrorsNameTheFault) {
  folder_.write("model.safetensors", file_of(R"({"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                                             R"("i":{"dtype":"I32","shape":[2],"data_offsets":[8,16]}})",
                                             std::string(16, '\0')));
  const auto read = Safetensors::open(folder_.path());
  const std::uint64_t two[] = {2}, three[] = {3};
  EXPECT_FAILURE(read.require("w", three), Exit::corrupt,
                 AllOf(HasSubstr("w of shape [3]"), HasSubstr("found shape [2]")));
  EXPECT_FAILURE(read.require("missing", two), Exit::corrupt, HasSubstr("tensor missing"));
  EXPECT_FAILURE(read.require("i", two), Exit::corrupt, AllOf(HasSubstr("F64, F32, BF16 or F16"), HasSubstr("I32")));
}

TEST_F(SafetensorsTest, RefusesAFalseHeaderLength) {
  expect_corrupt("", "8 bytes", "0 bytes");
  expect_corrupt("\x01\x02\x03", "8 bytes", "3 bytes");
  expect_corrupt(file_of("{}", "", 10'000'000'000), "100,000,000", "10000000000");
  expect_corrupt(file_of("{}", "", std::numeric_limits<std::uint64_t>::max()), "100,000,000", "18446744073709551615");
  expect_corrupt(file_of("{}", "", 3), "inside the file", "3 bytes");
}

TEST_F(SafetensorsTest, RefusesBadJson) {
  expect_corrupt(file_of("", ""), "JSON", "");
  expect_corrupt(file_of("{\"w\":", ""), "JSON", "");
  expect_corrupt(file_of("[]", ""), "object", "another");
  expect_corrupt(file_of(std::string(5000, '[') + std::string(5000, ']'), ""), "levels", "deeper");
  expect_corrupt(file_of(R"({"__metadata__":{"a":1}})", ""), "__metadata__.a", "another");
  expect_corrupt(file_of(R"({"w":7})", ""), "dtype, shape and data_offsets of tensor w", "7");
  expect_corrupt(file_of(R"({"w":{"dtype":"F31","shape":[],"data_offsets":[0,4]}})", "abcd"), "dtype", "F31");
  expect_corrupt(file_of(R"({"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "abcd"), "shape", "[-1]");
  expect_corrupt(file_of(R"({"w":{"dtype":"F32","shape":[1.5],"data_offsets":[0,4]}})", "abcd"), "shape", "[1.5]");
  expect_corrupt(file_of(R"({"w":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]}})", "abcd"),
                 "at most 8", "[1,1");
  expect_corrupt(file_of(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                         R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         "abcdefgh"),
                 "one tensor named w", "two");
}

TEST_F(SafetensorsTest, RefusesFalseOffsets) {
  const auto one = [](const std::string& shape, const std::string& offsets) {
    return fmt::format(R"({{"w":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets);
  };
  expect_corrupt(file_of(one("[2]", "[0,8]"), "abcd"), "inside the 4 bytes", "[0, 8]");
  expect_corrupt(file_of(one("[1]", "[4,0]"), "abcd"), "inside", "[4, 0]");
  expect_corrupt(file_of(one("[1]", "[18446744073709551612,0]"), "abcd"), "inside", "18446744073709551612");
  expect_corrupt(file_of(one("[1]", "[0]"), "abcd"), "inside", "[0]");
  expect_corrupt(file_of(one("[2]", "[0,4]"), "abcd"), "8 bytes for tensor w of shape [2]", "4 bytes");
  expect_corrupt(file_of(one("[4611686018427387904]", "[0,0]"), ""),
                 "more bytes for tensor w of shape [4611686018427387904]", "0 bytes");
  expect_corrupt(file_of(one("[4294967296,4294967296,1]", "[0,0]"), ""), "more bytes", "0 bytes");
  expect_corrupt(file_of(one("[1]", "[4,8]"), "abcdefgh"), "right after the header", "a hole");
  expect_corrupt(file_of(one("[1]", "[0,4]"), "abcdefgh"), "the end of the file", "4 bytes more");
  expect_corrupt(file_of(R"({"v":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                         R"("w":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})",
                         "abcdefgh"),
                 "right after tensor v", "overlap");
}

TEST_F(SafetensorsTest, ReadsShardsThroughTheirIndex) {
  const auto shard = [](const char* name) {
    return file_of(fmt::format(R"({{"{}":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}}})", name), "abcd");
  };
  folder_.write("one.safetensors", shard("a"));
  folder_.write("two.safetensors", shard("b"));
  const std::string index = "model.safetensors.index.json";
  folder_.write(index, R"({"metadata":{},"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})");
  const auto read = Safetensors::open(folder_.path());
  ASSERT_EQ(read.tensors().size(), 2u);
  EXPECT_EQ(read.find("b")->file.filename(), "two.safetensors");

  const auto refused = [&](const std::string& text, const std::string& words) {
    folder_.write(index, text);
    EXPECT_FAILURE(Safetensors::open(folder_.path()), Exit::corrupt, HasSubstr(words));
  };
  refused(R"({"weight_map":{"a":"one.safetensors","b":"one.safetensors"}})", "tensor b, which the index lists");
  refused(R"({"weight_map":{"a":"one.safetensors","b":"three.safetensors"}})", "no such file");
  refused(R"({"weight_map":{"a":"../one.safetensors"}})", "in the folder of the index");
  refused(R"({"weight_map":{"c":"one.safetensors"}})", "tensor a of one.safetensors");
  refused(R"({"weight_map":[]})", "weight_map");
  refused("{", "JSON");
}

TEST_F(SafetensorsTest, PickleIsRefusedWithTheCommandThatConvertsIt) {
  const tests::ScratchFolder folder;
  folder.write("pytorch_model.bin", "anything");
  EXPECT_FAILURE(Safetensors::open(folder.path()), Exit::usage,
                 ::testing::AllOf(HasSubstr("pickle"), HasSubstr("from_pretrained(argv[1], torch_dtype='auto')"),
                                  HasSubstr("save_pretrained(argv[2])"),
                                  ::testing::EndsWith(" " + folder.path().string() + "-safetensors")));
  folder.write("it's a/pytorch_model.bin", "anything");
  EXPECT_FAILURE(Safetensors::open(folder.path() / "it's a"), Exit::usage, HasSubstr("it'\\''s a'"));
}

TEST_F(SafetensorsTest, MissingFilesAreUsageErrors) {
  EXPECT_FAILURE(Safetensors::open(folder_.path()), Exit::usage, HasSubstr("model.safetensors"));
  EXPECT_FAILURE(Safetensors::open(folder_.path() / "x.safetensors"), Exit::usage, HasSubstr("x.safetensors"));
  folder_.write("adapter/adapter_model.safetensors", "");
  EXPECT_FAILURE(Safetensors::open(folder_.path() / "adapter"), Exit::usage, HasSubstr("holds an adapter (LoRA)"));
}

}  // namespace
}  // namespace strata::models
