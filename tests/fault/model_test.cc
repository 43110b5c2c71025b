// Model folders whose contents are wrong.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <map>

#include "base/error.h"
#include "tests/dist/tiny_run.h"

namespace strata::tests {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kConfig =
    R"({"model_type": "gpt2", "n_layer": 1, "n_embd": 32, "n_head": 2, "n_positions": 16, "vocab_size": 97,
        "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0})";

struct Tensor {
  std::vector<int> shape;
  std::vector<float> values;
};

class ModelFault : public testing::Test {
 protected:
  ModelFault() {
    add("wte.weight", {97, 32});
    add("wpe.weight", {16, 32});
    for (const char* norm : {"h.0.ln_1", "h.0.ln_2", "ln_f"}) {
      add(std::string(norm) + ".weight", {32});
      add(std::string(norm) + ".bias", {32});
    }
    add("h.0.attn.c_attn.weight", {32, 96});
    add("h.0.attn.c_attn.bias", {96});
    add("h.0.attn.c_proj.weight", {32, 32});
    add("h.0.attn.c_proj.bias", {32});
    add("h.0.mlp.c_fc.weight", {32, 128});
    add("h.0.mlp.c_fc.bias", {128});
    add("h.0.mlp.c_proj.weight", {128, 32});
    add("h.0.mlp.c_proj.bias", {32});
    run_.folder().write("model/config.json", kConfig);
  }

  void add(const std::string& name, const std::vector<int>& shape) {
    std::size_t size = 1;
    for (const int n : shape) size *= static_cast<std::size_t>(n);
    Tensor& tensor = tensors_[name] = {shape, std::vector<float>(size)};
    for (std::size_t i = 0; i < size; ++i) tensor.values[i] = static_cast<float>((i * 37) % 19) / 190 - 0.05f;
  }

  std::string header() const {
    std::string text;
    std::size_t at = 0;
    for (const auto& [name, tensor] : tensors_) {
      std::string shape;
      for (const int n : tensor.shape) shape += (shape.empty() ? "" : ",") + std::to_string(n);
      text += fmt::format("{}\"{}\":{{\"dtype\":\"F32\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          text.empty() ? "" : ",", name, shape, at, at + tensor.values.size() * 4);
      at += tensor.values.size() * 4;
    }
    return "{" + text + "}";
  }
  std::string data() const {
    std::string bytes;
    for (const auto& [name, tensor] : tensors_)
      bytes.append(reinterpret_cast<const char*>(tensor.values.data()), tensor.values.size() * 4);
    return bytes;
  }
  void write(const std::string& header, const std::string& data, std::optional<std::uint64_t> length = {}) const {
    const std::uint64_t n = length.value_or(header.size());
    run_.folder().write("model/model.safetensors",
                        std::string(reinterpret_cast<const char*>(&n), sizeof n) + header + data);
  }
  void write() const { write(header(), data()); }

  template <typename Matcher>
  void expect_corrupt(Matcher matcher) const {
    EXPECT_COMPLAINT(run(train()), Exit::corrupt, AllOf(HasSubstr(run_.file("model")), matcher));
  }
  std::vector<std::string> train(const std::vector<std::string>& sets = {}) const {
    return run_.train_stored(run_.file("model"), sets);
  }

  TinyRun run_;
  std::map<std::string, Tensor> tensors_;
};

TEST_F(ModelFault, AnIntactModelTrains) {
  write();
  EXPECT_EQ(run(train()).code, 0) << run(train()).all();
}

TEST_F(ModelFault, MissingFiles) {
  EXPECT_COMPLAINT(run(train()), Exit::usage, HasSubstr("model.safetensors"));
  std::filesystem::remove(run_.file("model/config.json"));
  EXPECT_COMPLAINT(run(train()), Exit::usage, AllOf(HasSubstr("holds no model"), HasSubstr("config.json")));
  std::filesystem::remove(run_.file("model"));
  EXPECT_COMPLAINT(run(under_mpirun(2, train())), Exit::usage, HasSubstr(run_.file("model")));
}

TEST_F(ModelFault, TruncatedOrFalseHeaders) {
  const std::string whole = data(), good = header();
  write(good, whole.substr(0, whole.size() - 100));
  expect_corrupt(HasSubstr("offset"));
  run_.folder().write("model/model.safetensors", "abc");
  expect_corrupt(HasSubstr("3 bytes"));
  write(good, whole, std::uint64_t{10} << 30);
  expect_corrupt(HasSubstr(std::to_string(std::uint64_t{10} << 30)));
  write(std::string(100'000, '[') + std::string(100'000, ']'), whole);
  expect_corrupt(HasSubstr("expected"));
  write("{\"a\":" + std::string(1000, '[') + std::string(1000, ']') + "}", whole);
  expect_corrupt(HasSubstr("expected"));
  const auto lie = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    write(text, whole);
  };
  const std::string last = std::to_string(whole.size());
  lie(last + "]", std::to_string(whole.size() + 4) + "]");  // past the end
  expect_corrupt(HasSubstr("offset"));
  lie("\"data_offsets\":[0,", "\"data_offsets\":[4,");  // a gap
  expect_corrupt(HasSubstr("offset"));
  lie("\"data_offsets\":[0,", "\"data_offsets\":[18446744073709551612,");
  expect_corrupt(HasSubstr("offset"));
}

TEST_F(ModelFault, WrongMissingOrUnexpectedTensors) {
  const auto good = tensors_;
  add("h.0.mlp.c_fc.weight", {128, 32});
  write();
  expect_corrupt(AllOf(HasSubstr("h.0.mlp.c_fc.weight"), HasSubstr("32, 128"), HasSubstr("128, 32")));
  tensors_ = good;
  tensors_.erase("h.0.ln_2.bias");
  write();
  expect_corrupt(HasSubstr("h.0.ln_2.bias"));
  tensors_ = good;
  add("h.1.ln_1.weight", {32});
  write();
  expect_corrupt(AllOf(HasSubstr("h.1.ln_1.weight"), HasSubstr("config.json")));
}

// One of two ranks holds the element. That rank is named, and the other ends too.
TEST_F(ModelFault, NamesNonFiniteWeights) {
  tensors_["h.0.mlp.c_proj.weight"].values[4000] = NAN;
  write();
  EXPECT_COMPLAINT(run(under_mpirun(2, train({"zero.stage=3"}))), Exit::corrupt,
                   AllOf(HasSubstr("model.safetensors"), HasSubstr("h.0.mlp.c_proj.weight"), HasSubstr("nan"),
                         HasSubstr("element 4000")));
}

// The same path leads to different files, as on nodes with different disks.
TEST_F(ModelFault, RanksThatReadDifferentConfigurations) {
  write();
  run_.folder().write("other/model/config.json",
                      std::string(kConfig).replace(std::string(kConfig).find("0.0"), 3, "0.5"));
  std::filesystem::copy(run_.file("model/model.safetensors"), run_.file("other/model"));
  const auto command = run_.train_stored("/proc/self/cwd/model");
  const std::string script =
      "cd " + run_.folder().path().string() + "; test $OMPI_COMM_WORLD_RANK = 0 || cd other; exec \"$@\"";
  const Outcome outcome = run(under_mpirun(2, command, script));
  EXPECT_COMPLAINT(outcome, Exit::failed, HasSubstr("rank 1 reads a different config.json than rank 0"));
  EXPECT_THAT(outcome.errors, testing::Not(HasSubstr("step 1/")));
}

}  // namespace
}  // namespace strata::tests
