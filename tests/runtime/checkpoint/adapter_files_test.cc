// Files of an adapter: checkpoints without its base, peft's folder, and the merged model.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/exporter.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/weights/adapter/peft_folder.h"
#include "tests/comm/run_threads.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"

namespace strata::runtime {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

std::vector<std::string> with(std::vector<std::string> sets, const std::vector<std::string>& more) {
  sets.insert(sets.end(), more.begin(), more.end());
  return sets;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The hash of the weights that the job begins with.
std::string initial_hash(const Job& job, comm::World& world) {
  Trainer trainer(job, world, 1);
  trainer.load_initial_weights(1);
  return trainer.weights_hash();
}

class AdapterFiles : public testing::Test {
 protected:
  AdapterFiles() { after_three_ = saved_.run(2, saved_.sets(2, with(kLora, {"zero.stage=3"})), 3, {3}); }

  // The first loss, and the weights before it.
  SavedRun::Result start(const std::vector<std::string>& more) const {
    return saved_.run(1, saved_.sets(1, with(more, {"checkpoint.resume=none", "training.precision=fp32"})), 1);
  }
  // The message that refuses peft's folder; empty if it is accepted.
  std::string refusal() const {
    try {
      (void)start({"adapter.path=" + place("peft").string()});
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path place(const char* name) const { return saved_.folder().path() / name; }
  // Replaces the first place of a text in the configuration of peft's folder.
  void replace_in_config(std::string_view old, std::string_view now) const {
    std::string config = read_text(place("peft") / kPeftConfigName);
    const std::size_t at = config.find(old);
    ASSERT_NE(at, std::string::npos) << config;
    std::ofstream(place("peft") / kPeftConfigName) << config.replace(at, old.size(), now);
  }
  // A run whose model.path is the newest checkpoint reads its weights, including those of the adapter.
  void expect_weights_of_checkpoints() const {
    const Recipe recipe =
        load_recipe(std::nullopt, std::vector<std::string>{"model.path=" + saved_.checkpoints().string(),
                                                           "data.seq_len=16", "training.precision=fp32"});
    const Workload workload = open_workload(recipe);
    EXPECT_FALSE(workload.adapter().path);
    EXPECT_EQ(workload.adapter().lora.rank, 4);
    EXPECT_EQ(workload.recipe.adapter.kind, AdapterKind::none) << "the recipe stays what the user wrote";
    comm::run_threads(1, [&](comm::World& world) {
      const Job job = make_job(workload, 1, capacity_of(recipe.memory, 1), Purpose::generate);
      const auto weights = first_weights(job, world, 1, [](const std::string&) {});
      const ModelFolder folder(saved_.checkpoints());
      const auto own = folder.weights(*job.model);
      for (std::size_t unit = 0; unit < job.model->units.size(); ++unit)
        for (std::size_t p = 0; p < job.model->units[unit]->parameters().size(); ++p) {
          std::vector<float> read(job.model->units[unit]->parameters()[p].size()), expected = read;
          weights->read(unit, p, 0, read);
          own->read(unit, p, 0, expected);
          EXPECT_EQ(read, expected) << job.model->units[unit]->parameters()[p].name;
        }
    });
  }

  const std::vector<std::string> kLora = {"adapter.kind=lora", "adapter.rank=4", "training.precision=fp32",
                                          R"(adapter.alpha_pattern={"attn.c_proj" = 2})"};
  SavedRun saved_;
  SavedRun::Result after_three_;
};

TEST_F(AdapterFiles, CheckpointsHoldOnlyTrainedTensors) {
  const Checkpoint checkpoint(saved_.checkpoints() / "step-00000003");
  EXPECT_EQ(checkpoint.manifest().base_hash.size(), 32u);
  EXPECT_TRUE(checkpoint.extents("master", "transformer.wte.weight").empty());
  EXPECT_FALSE(checkpoint.extents("master", "transformer.h.1.mlp.c_fc.lora_B.weight").empty());
  const auto straight = saved_.run(1, saved_.sets(1, with(kLora, {"checkpoint.resume=none"})), 6);
  const auto gone_on = saved_.run(1, saved_.sets(1, kLora), 6);
  EXPECT_EQ(gone_on.resumed, "step-00000003");
  EXPECT_EQ(gone_on.weights, straight.weights);
}

// Reading a checkpoint's weights gives its own adapter, whatever adapter the run began with.
TEST_F(AdapterFiles, ACheckpointsAdapterIsItsOwn) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const std::vector<std::string> began = {"adapter.path=" + place("peft").string(), "training.precision=fp32"};
  fs::remove_all(saved_.checkpoints());
  const auto trained = saved_.run(1, saved_.sets(1, began), 2, {2});
  EXPECT_NE(trained.weights, after_three_.weights);
  expect_weights_of_checkpoints();
  // The recipe resumes without the folder, with the keys that the folder had.
  const auto gone_on = saved_.run(1, saved_.sets(1, began), 4);
  EXPECT_EQ(gone_on.resumed, "step-00000002");
  fs::remove_all(place("peft"));
  // The same layers under another name, and fewer layers.
  EXPECT_EQ(saved_.run(1, saved_.sets(1, with(kLora, {"adapter.target_modules=all-linear"})), 4).weights,
            gone_on.weights);
  EXPECT_FAILURE((void)saved_.run(1, saved_.sets(1, with(kLora, {R"(adapter.target_modules=["c_fc"])"})), 4),
                 Exit::usage, HasSubstr("adapter.target_modules"));
  export_adapter(ModelFolder(saved_.checkpoints()), place("again"), {});
  EXPECT_EQ(read_peft_config(place("again")).adapter.target_modules.names.size(), 8u);
}

TEST_F(AdapterFiles, PeftsFolderContinuesWithTheSameWeights) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const PeftConfig config = read_peft_config(place("peft"));
  EXPECT_EQ(config.adapter.rank, 4);
  EXPECT_EQ(config.adapter.alpha, 16);
  EXPECT_TRUE(config.input_major || !config.adapter.target_modules.names.empty());
  EXPECT_EQ(config.adapter.target_modules.names.size(), 8u) << "four of each of two blocks";
  ASSERT_EQ(config.adapter.alpha_pattern.size(), 1u);
  EXPECT_EQ(config.adapter.alpha_pattern[0].second, 2);
  const auto file = models::Safetensors::open(place("peft") / kPeftWeightsName);
  EXPECT_EQ(file.tensors().size(), 16u);
  EXPECT_TRUE(file.find("base_model.model.transformer.h.0.attn.c_attn.lora_A.weight"));
  EXPECT_EQ(file.metadata().at("format"), "pt");

  Recipe recipe = load_recipe(std::nullopt, saved_.sets(1, {"adapter.path=" + place("peft").string(),
                                                            "checkpoint.resume=none", "training.precision=fp32"}));
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
    EXPECT_EQ(initial_hash(job, world), after_three_.weights);
  });
  const auto refused = [&](const char* set) {
    std::string text;
    try {
      open_workload(load_recipe(std::nullopt, saved_.sets(1, {"adapter.path=" + place("peft").string(), set})));
    } catch (const Error& error) {
      text = error.what();
    }
    return text;
  };
  std::string config_text = read_text(place("peft") / kPeftConfigName);
  config_text.insert(config_text.find('{') + 1, "\"swift_version\": \"3\",");
  std::ofstream(place("peft") / kPeftConfigName) << config_text;
  EXPECT_THAT(make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1)).notes,
              Contains(HasSubstr("swift_version")));
  EXPECT_EQ(refused("adapter.rank=4"), "");
  EXPECT_EQ(refused("adapter.target_modules=all-linear"), "") << "the folder lists the same layers";
  EXPECT_EQ(refused(R"(adapter.target_modules=["c_proj", "c_fc", "c_attn"])"), "");
  EXPECT_THAT(refused(R"(adapter.target_modules=["c_attn"])"), HasSubstr("leave the key out to continue"));
  EXPECT_THAT(refused("adapter.rank=8"), AllOf(HasSubstr("adapter.rank = 8"), HasSubstr("has 4")));
}

// The merged model begins with the adapter's loss.
TEST_F(AdapterFiles, MergedModelsComputeWhatTheAdapterDoes) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  export_model(ModelFolder(saved_.checkpoints()), place("merged"), {});
  const auto adapted = start({"adapter.path=" + place("peft").string()});
  std::vector<std::string> sets = saved_.sets(1, {"checkpoint.resume=none", "training.precision=fp32"});
  std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
  const auto merged =
      saved_.run(1, with(sets, {"model.path=" + place("merged").string(), "model.config.resid_pdrop=0.1"}), 1);
  const auto base = start({});
  EXPECT_NEAR(std::stod(adapted.losses[0]), std::stod(merged.losses[0]), 1e-5);
  EXPECT_GT(std::abs(std::stod(adapted.losses[0]) - std::stod(base.losses[0])), 1e-4)
      << "the adapter must have learned something";
}

// Files of a state_dict, of a wrapped model, and without peft's prefix: the error explains the names and gives a
// command that fixes them.
TEST_F(AdapterFiles, ExplainsNamesThatPeftDoesNotSave) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const fs::path file = place("peft") / kPeftWeightsName;
  const std::string bytes = read_text(file);
  const auto refused = [&](const std::string& old, const std::string& now) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data(), sizeof length);
    std::string header = bytes.substr(8, length);
    const std::string data = bytes.substr(8 + length);
    for (std::size_t at = 0; (at = header.find(old, at)) != std::string::npos; at += now.size())
      header.replace(at, old.size(), now);
    length = header.size();
    std::ofstream out(file, std::ios::binary);
    out.write(reinterpret_cast<const char*>(&length), sizeof length);
    out << header << data;
    out.close();
    return refusal();
  };
  EXPECT_EQ(refused("none", "none"), "");
  EXPECT_THAT(refused("lora_A.weight", "lora_A.default.weight"),
              AllOf(HasSubstr("carries the adapter's own name, default"), testing::EndsWith(" .default ''")));
  EXPECT_THAT(refused("base_model.model.", ""), HasSubstr("do not begin with base_model.model.,"));
  EXPECT_THAT(refused("base_model.model.", "module.base_model.model."),
              AllOf(HasSubstr("begin with module.base_model.model.,"),
                    testing::EndsWith(" module.base_model.model. base_model.model.")));
  EXPECT_THAT(refused("base_model.model.transformer.", "base_model.model."),
              AllOf(HasSubstr("lack transformer. after"), testing::EndsWith(" base_model.model.transformer.")));
}

// peft saves resized embeddings whole, and its configuration does not mention them.
TEST_F(AdapterFiles, ExplainsTensorsMissingFromModulesToSave) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const fs::path file = place("peft") / kPeftWeightsName;
  const std::string whole = read_text(file);
  const auto refused = [&](const char* name, std::uint64_t rows, std::uint64_t columns) {
    std::ofstream(file, std::ios::binary) << whole;
    std::string data(rows * columns * sizeof(float), '\0');
    {
      const auto stored = models::Safetensors::open(file);
      std::vector<models::TensorSpec> tensors{
          {name, device::DType::fp32, {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)}}};
      for (const models::StoredTensor& tensor : stored.tensors()) {
        tensors.push_back({tensor.name, device::DType::fp32, {tensor.shape.begin(), tensor.shape.end()}});
        data.append(reinterpret_cast<const char*>(tensor.bytes.data()), tensor.bytes.size());
      }
      data.insert(0, models::safetensors_header(tensors));
    }
    std::ofstream(file, std::ios::binary) << data;
    return refusal();
  };
  const char* table = "base_model.model.transformer.wpe.weight";
  EXPECT_THAT(refused(table, 24, 48),
              AllOf(HasSubstr(table), HasSubstr("contains a full copy of"), HasSubstr("add \"wpe\" there")));
  EXPECT_THAT(refused(table, 25, 48), AllOf(HasSubstr("as [25, 48], but the model's is [24, 48]"), HasSubstr("merge")));
  EXPECT_THAT(refused("base_model.model.score.weight", 2, 48),
              AllOf(HasSubstr("an adapter of a classifier"),
                    HasSubstr("contains the classification head base_model.model.score.weight"),
                    HasSubstr("training.objective is \"causal_lm\"")));
  EXPECT_THAT(refused("of.another", 1, 1),
              AllOf(HasSubstr("is an adapter of another model"), HasSubstr("which this gpt2 model does not have")));
  // The head, which shares the table, is stored under its own name.
  const char* head = "base_model.model.lm_head.weight";
  EXPECT_THAT(refused(head, 40, 48), AllOf(HasSubstr(head), HasSubstr("as [40, 48]"), HasSubstr("merge")));
  EXPECT_THAT(refused(head, 130, 48), AllOf(HasSubstr("add \"wte\" there"), HasSubstr("ensure_weight_tying")));
}

// peft saves a table that two layers share, and that was trained as one, under both names (ensure_weight_tying).
TEST_F(AdapterFiles, ReadsATiedTable) {
  const std::vector<std::string> tied =
      with(kLora,
           {R"(adapter.modules_to_save=["wte"])", "adapter.ensure_weight_tying=true", "optimizer.learning_rate=1e-2"});
  fs::remove_all(saved_.checkpoints());
  const auto trained = saved_.run(2, saved_.sets(2, with(tied, {"zero.stage=3"})), 3, {3});
  expect_weights_of_checkpoints();
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  EXPECT_TRUE(read_peft_config(place("peft")).adapter.ensure_weight_tying);
  const fs::path path = place("peft") / kPeftWeightsName;
  std::size_t copy = 0;
  {
    const auto file = models::Safetensors::open(path);
    const auto* table = file.find("base_model.model.transformer.wte.weight");
    const auto* head = file.find("base_model.model.lm_head.weight");
    ASSERT_TRUE(table && head);
    EXPECT_TRUE(std::ranges::equal(table->bytes, head->bytes));
    EXPECT_EQ(file.tensors().size(), 18u);
    copy = read_text(path).find(std::string(reinterpret_cast<const char*>(head->bytes.data()), head->bytes.size()));
  }
  const std::vector<std::string> sets =
      saved_.sets(1, {"adapter.path=" + place("peft").string(), "checkpoint.resume=none", "training.precision=fp32"});
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(open_workload(load_recipe(std::nullopt, sets)), 1, capacity_of({}, 1));
    EXPECT_EQ(initial_hash(job, world), trained.weights);
  });
  std::string bytes = read_text(path);
  ASSERT_NE(copy, std::string::npos);
  bytes[copy] = static_cast<char>(bytes[copy] ^ 1);
  std::ofstream(path, std::ios::binary) << bytes;
  const std::string adapter = "adapter.path=" + place("peft").string();
  EXPECT_FAILURE((void)start({adapter}), Exit::usage,
                 AllOf(HasSubstr("differ, but are one table"), HasSubstr("lm_head.weight"),
                       HasSubstr("name both in modules_to_save"),
                       HasSubstr("untie the model: model.config.tie_word_embeddings = false; otherwise train")));
  replace_in_config(R"("modules_to_save":["wte"])", R"("modules_to_save":["wte","lm_head"])");
  replace_in_config(R"("ensure_weight_tying":true)", R"("ensure_weight_tying":false)");
  EXPECT_NO_THROW((void)start({adapter, "model.config.tie_word_embeddings=false"}));
}

// peft lists names of many families, and a checkpoint keeps these lists.
TEST_F(AdapterFiles, IgnoresNamesOfOtherFamilies) {
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  std::string config = read_text(place("peft") / kPeftConfigName);
  const std::string_view key = "\"target_modules\":[";
  ASSERT_NE(config.find(key), std::string::npos) << config;
  config.insert(config.find(key) + key.size(), "\"q_proj\", ");
  std::ofstream(place("peft") / kPeftConfigName) << config;
  fs::remove_all(saved_.checkpoints());
  (void)saved_.run(1, saved_.sets(1, {"adapter.path=" + place("peft").string(), "training.precision=fp32"}), 2, {2});
  expect_weights_of_checkpoints();
}

// A recipe may name only the adapter, because its file names the base.
TEST_F(AdapterFiles, ReadsAnAdapterGivenAsModelPathWithItsBase) {
  export_model(ModelFolder(saved_.checkpoints()), place("base"), {});
  std::vector<std::string> sets = saved_.sets(1, {"checkpoint.resume=none", "training.precision=fp32"});
  std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
  fs::remove_all(saved_.checkpoints());
  const auto of_base = saved_.run(
      1, with(sets, {"model.path=" + place("base").string(), "adapter.kind=lora", "adapter.rank=4"}), 2, {2});
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const std::string path = "model.path=" + place("peft").string();
  const Workload workload = open_workload(load_recipe(std::nullopt, with(sets, {path})));
  EXPECT_EQ(workload.adapter().path, place("peft"));
  EXPECT_EQ(workload.model_path(), place("base"));
  EXPECT_EQ(workload.recipe.model.path, place("peft")) << "the recipe stays what the user wrote";
  comm::run_threads(1, [&](comm::World& world) {
    const Job job = make_job(workload, 1, capacity_of({}, 1));
    EXPECT_THAT(job.notes, Contains(HasSubstr("is an adapter: it is read with its base model")));
    EXPECT_EQ(initial_hash(job, world), of_base.weights);
  });
  EXPECT_FAILURE(open_workload(load_recipe(std::nullopt, with(sets, {path, "adapter.kind=none"}))), Exit::usage,
                 AllOf(HasSubstr("contradict each other"), HasSubstr("merge first: strata export ")));
  fs::remove_all(place("base"));
  EXPECT_FAILURE(open_workload(load_recipe(std::nullopt, with(sets, {path}))), Exit::usage,
                 AllOf(HasSubstr("holds an adapter (LoRA)"), HasSubstr(place("base").string())));
}

// A table that was trained as a copy is stored under one name only, whatever the configuration says.
TEST_F(AdapterFiles, RefusesATableTrainedAsACopy) {
  const std::vector<std::string> untied =
      with(kLora, {R"(adapter.modules_to_save=["wte"])", "model.config.tie_word_embeddings=false"});
  fs::remove_all(saved_.checkpoints());
  (void)saved_.run(1, saved_.sets(1, untied), 2, {2});
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  const std::vector<std::string> path = {"adapter.path=" + place("peft").string()};
  EXPECT_FAILURE(
      (void)start(path), Exit::usage,
      AllOf(HasSubstr("without ensure_weight_tying"), HasSubstr("model.config.tie_word_embeddings = false")));
  replace_in_config("{", R"({"ensure_weight_tying": true,)");
  EXPECT_FAILURE((void)start(path), Exit::usage,
                 AllOf(HasSubstr("no base_model.model.lm_head.weight"), HasSubstr("set that to false in its"),
                       HasSubstr("untie the model: model.config.tie_word_embeddings = false; if it was trained with")));
  replace_in_config(R"("ensure_weight_tying": true)", R"("ensure_weight_tying": false)");
  EXPECT_NO_THROW((void)start(with(path, {"model.config.tie_word_embeddings=false"})));
}

// Magnitudes begin as the lengths of W's rows, are kept with A and B, and are merged.
TEST_F(AdapterFiles, Dora) {
  const std::vector<std::string> dora = {"adapter.kind=lora", "adapter.rank=4", "adapter.dora=true",
                                         "training.precision=fp32", "optimizer.learning_rate=1e-2"};
  fs::remove_all(saved_.checkpoints());
  const auto straight = saved_.run(1, saved_.sets(1, dora), 4);
  fs::remove_all(saved_.checkpoints());
  const auto trained = saved_.run(2, saved_.sets(2, with(dora, {"zero.stage=3"})), 3, {3});
  EXPECT_EQ(saved_.run(1, saved_.sets(1, dora), 4).weights, straight.weights);
  expect_weights_of_checkpoints();
  const std::vector<std::string> lora = {"model.path=" + saved_.checkpoints().string(), "data.seq_len=16",
                                         "adapter.kind=lora", "adapter.rank=4"};
  EXPECT_FAILURE(open_workload(load_recipe(std::nullopt, lora)), Exit::usage,
                 HasSubstr("'s adapter has adapter.dora = true, but the recipe says false"));
  export_adapter(ModelFolder(saved_.checkpoints()), place("peft"), {});
  export_model(ModelFolder(saved_.checkpoints()), place("merged"), {});
  EXPECT_TRUE(read_peft_config(place("peft")).adapter.dora);
  const auto file = models::Safetensors::open(place("peft") / kPeftWeightsName);
  EXPECT_EQ(file.tensors().size(), 24u);
  const auto* magnitude = file.find("base_model.model.transformer.h.0.attn.c_attn.lora_magnitude_vector");
  ASSERT_TRUE(magnitude);
  EXPECT_EQ(magnitude->shape.size(), 1u);

  const std::string path = "adapter.path=" + place("peft").string();
  const Recipe recipe =
      load_recipe(std::nullopt, saved_.sets(1, {path, "checkpoint.resume=none", "training.precision=fp32"}));
  comm::run_threads(1, [&](comm::World& world) {
    EXPECT_EQ(initial_hash(make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1)), world), trained.weights);
  });
  const auto adapted = start({path});
  std::vector<std::string> sets = saved_.sets(1, {"checkpoint.resume=none", "training.precision=fp32"});
  std::erase_if(sets, [](const std::string& set) { return set.starts_with("model."); });
  const auto merged =
      saved_.run(1, with(sets, {"model.path=" + place("merged").string(), "model.config.resid_pdrop=0.1"}), 1);
  EXPECT_NEAR(std::stod(adapted.losses[0]), std::stod(merged.losses[0]), 1e-5);
  EXPECT_GT(std::abs(std::stod(adapted.losses[0]) - std::stod(start({}).losses[0])), 1e-4)
      << "the adapter must have learned something";
}

}  // namespace
}  // namespace strata::runtime
