#include "runtime/checkpoint/export/quantised_export.h"

#include <gmock/gmock.h>

#include <filesystem>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "tests/scratch_folder.h"
#include "tests/source_dir.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;

fs::path golden(const char* name) {
  return tests::source_dir() / "tests/golden" / name / "model";
}

TEST(QuantisedExport, WritesWhatBitsandbytesHadWritten) {
  const tests::ScratchFolder scratch;
  const fs::path out = scratch.path() / "out";
  export_model(ModelFolder(golden("nf4/llama")), out, {.quantised = true});
  const auto before = models::Safetensors::open(golden("nf4/llama")), after = models::Safetensors::open(out);
  ASSERT_EQ(before.tensors().size(), after.tensors().size());
  for (const models::StoredTensor& tensor : before.tensors()) {
    const models::StoredTensor* const written = after.find(tensor.name);
    ASSERT_NE(written, nullptr) << tensor.name;
    EXPECT_EQ(written->dtype, tensor.dtype) << tensor.name;
    if (tensor.name.ends_with("bitsandbytes__nf4")) continue;  // JSON, read below
    EXPECT_EQ(written->shape, tensor.shape) << tensor.name;
    EXPECT_TRUE(std::ranges::equal(written->bytes, tensor.bytes)) << tensor.name;
  }
  const models::Config config = ModelFolder(out).config();
  EXPECT_EQ(config.json("quantization_config.quant_method"), R"("bitsandbytes")");
  EXPECT_EQ(config.json("quantization_config.bnb_4bit_use_double_quant"), "true");
  // It is read as the first one was.
  const fs::path again = scratch.path() / "again", first = scratch.path() / "first";
  export_model(ModelFolder(out), again, {});
  export_model(ModelFolder(golden("nf4/llama")), first, {});
  const auto a = models::Safetensors::open(again), b = models::Safetensors::open(first);
  for (const models::StoredTensor& tensor : b.tensors())
    EXPECT_TRUE(models::same_values(tensor, *a.find(tensor.name))) << tensor.name;
  EXPECT_EQ(ModelFolder(first).config().json("quantization_config"), "null");
}

TEST(QuantisedExport, OfNumbersIsRefused) {
  const tests::ScratchFolder scratch;
  try {
    export_model(ModelFolder(golden("llama")), scratch.path() / "out", {.quantised = true});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Exit::usage);
    EXPECT_THAT(error.what(), testing::HasSubstr("model.frozen_format"));
  }
}

}  // namespace
}  // namespace strata::runtime
