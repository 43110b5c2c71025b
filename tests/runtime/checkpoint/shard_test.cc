#include "runtime/checkpoint/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

#include "tests/failure.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::vector<Extent> two_extents() {
  return {{.kind = "master",
           .tensor = "wte",
           .format = device::StorageFormat::fp32,
           .box = Box::full({4, 8}),
           .begin = 0,
           .end = 32,
           .bytes = 128,
           .checksums = {0x0123456789abcdef}},
          {.kind = "moment1",
           .tensor = "ln.bias",
           .format = device::StorageFormat::block8,
           .box = Box::full({512}),
           .begin = 0,
           .end = 512,
           .bytes = stored_bytes(device::StorageFormat::block8, 512),
           .checksums = {7}}};
}

class ShardTest : public testing::Test {
 protected:
  // The file with this header, followed by the number of bytes that its extents give.
  ShardEntry write(const std::string& header, std::uint64_t bytes) const {
    folder_.write("shard", header + std::string(bytes, '\0'));
    return {"shard", header.size() + bytes, header.size(), XXH3_64bits(header.data(), header.size())};
  }
  std::filesystem::path file() const { return folder_.path() / "shard"; }

  tests::ScratchFolder folder_;
};

TEST_F(ShardTest, TheHeaderIsSafetensorsPlusPlaces) {
  const std::string header = shard_header(two_extents());
  EXPECT_EQ(header.size() % kShardHeaderAlignment, 0U);
  std::uint64_t length = 0;
  std::memcpy(&length, header.data(), sizeof length);
  EXPECT_EQ(length, header.size() - 8);
  const std::uint64_t bytes = stored_bytes(device::StorageFormat::block8, 512);
  EXPECT_THAT(header.substr(8),
              StartsWith("{\"__metadata__\":{\"format\":\"strata shard 1\",\n"
                         "\"master/wte\":\"4,8 0 32 0123456789abcdef\",\n"
                         "\"moment1/ln.bias\":\"512 0 512 0000000000000007\"},\n"
                         "\"master/wte\":{\"dtype\":\"F32\",\"shape\":[32],\"data_offsets\":[0,128]},\n"
                         "\"moment1/ln.bias\":{\"dtype\":\"U8\",\"shape\":[" +
                         std::to_string(bytes) + "],\"data_offsets\":[128," + std::to_string(128 + bytes) + "]}} "));
}

TEST_F(ShardTest, ReadsBackWhatItWrote) {
  const std::vector<Extent> written = two_extents();
  const auto read = read_shard_header(file().string(), write(shard_header(written), 128 + written[1].bytes));
  ASSERT_EQ(read.size(), 2U);
  for (const Extent& extent : read) {
    const Extent& as = written[extent.kind == "master" ? 0 : 1];
    EXPECT_EQ(extent.tensor, as.tensor);
    EXPECT_EQ(extent.format, as.format);
    EXPECT_EQ(extent.box, as.box);
    EXPECT_EQ(std::pair(extent.begin, extent.end), std::pair(as.begin, as.end));
    EXPECT_EQ(extent.checksums, as.checksums);
  }
}

// A file may have several boxes of a tensor; the entries' names tell them apart.
TEST_F(ShardTest, BoxesHaveTheirOffsetsAndSizes) {
  Extent e{"master", "qkv", device::StorageFormat::fp32, {{4, 3, 128}, {0, 0, 64}, {4, 3, 64}}, 256, 512};
  e.bytes = 1024;
  e.checksums = {0x0123456789abcdef};
  Extent other = e;
  other.box.offset = {0, 0, 0};
  const std::string header = shard_header(std::vector{e, other});
  EXPECT_THAT(header.substr(8),
              StartsWith("{\"__metadata__\":{\"format\":\"strata shard 2\",\n"
                         "\"master/qkv[0,0,64]\":\"4,3,128 0,0,64 4,3,64 256 512 0123456789abcdef\","));
  const auto read = read_shard_header(file(), write(header, 2048));
  ASSERT_EQ(read.size(), 2U);
  for (const Extent& extent : read) {
    EXPECT_EQ(extent.tensor, "qkv");
    EXPECT_EQ(extent.box, extent.box.offset[2] == 0 ? other.box : e.box);
    EXPECT_EQ(std::pair(extent.begin, extent.end), std::pair(e.begin, e.end));
  }
  const auto refused = [&](const char* was, const char* is) {
    SCOPED_TRACE(is);
    std::string changed = header;
    for (std::size_t at = 0; (at = changed.find(was, at)) != std::string::npos;) changed.replace(at, strlen(was), is);
    EXPECT_FAILURE((void)read_shard_header(file(), write(changed, 2048)), Exit::corrupt, HasSubstr("expected"));
  };
  refused("4,3,64 256", "4,3,65 256");   // beyond the tensor
  refused("4,3,64 256", "4,3,00 256");   // an empty box
  refused("0,0,64 4,3", "0,0,63 4,3");   // not what the entry's name says
  refused("4,3,64 256", "4,3,1,8 256");  // with a different number of dimensions
  refused(" 0,0,64 4,3,64 ", " ");       // named as a box, but a complete tensor
  refused(" 256 512 ", " 256 769 ");     // beyond the box
}

TEST_F(ShardTest, DifferencesFromTheManifestAreDamage) {
  const std::string header = shard_header(two_extents());
  const ShardEntry promised = write(header, 128 + stored_bytes(device::StorageFormat::block8, 512));
  ShardEntry longer = promised;
  ++longer.bytes;
  EXPECT_FAILURE((void)read_shard_header(file(), longer), Exit::corrupt, HasSubstr("expected"));
  std::string changed = header;
  changed[header.find("cdef")] = 'd';
  (void)write(changed, 128 + stored_bytes(device::StorageFormat::block8, 512));
  EXPECT_FAILURE((void)read_shard_header(file(), promised), Exit::corrupt, HasSubstr("shard"));
}

TEST(ShardState, HasTheDtypesOfSafetensors) {
  EXPECT_EQ(stored_dtype(device::StorageFormat::fp32), "F32");
  EXPECT_EQ(stored_dtype(device::StorageFormat::bf16), "BF16");
  EXPECT_EQ(stored_dtype(device::StorageFormat::block8), "U8");
}

}  // namespace
}  // namespace strata::runtime
