#include "runtime/weights/weights.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/files/config.h"
#include "models/files/safetensors.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/recipe/load_recipe.h"
#include "tests/failure.h"
#include "tests/runtime/saved_run.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

// Weights that record which reads were announced.
class Noted final : public WeightSource {
 public:
  void read(std::size_t unit, std::size_t parameter, std::size_t begin, std::span<float> out) const override {
    EXPECT_EQ(said_.count({unit, parameter, begin, out.size()}), 1u) << unit << ' ' << parameter << ' ' << begin;
    read_ += out.size();
    std::fill(out.begin(), out.end(), 1.0f);
  }
  void prefetch(std::size_t unit, std::size_t parameter, std::size_t begin, std::size_t count) const override {
    EXPECT_TRUE(said_.insert({unit, parameter, begin, count}).second) << "twice";
  }
  std::size_t read() const { return read_; }

 private:
  mutable std::set<std::array<std::size_t, 4>> said_;
  mutable std::size_t read_ = 0;
};

TEST(LoadWeights, ReadsTheElementsThatItAnnounced) {
  const SavedRun run;
  const Recipe recipe = load_recipe(std::nullopt, run.sets(1));
  const Job job = make_job(open_workload(recipe), 1, capacity_of(recipe.memory, 1));
  const auto world = comm::solo_world();
  Trainer trainer(job, *world, 1);
  const Noted weights;
  load_same_weights(trainer.executor(), *job.model, job.plan, weights, 1, *world);
  EXPECT_EQ(weights.read(), static_cast<std::size_t>(job.model->parameters()));
}

using testing::HasSubstr;

std::unique_ptr<models::Model> tied_model() {
  return make_model(models::Config::parse(R"({"model_type":"gpt2","n_embd":8,"n_head":2,"n_layer":1,"n_positions":4,
                                              "vocab_size":5})",
                                          "config.json"),
                    {1, 4, device::DType::fp32, 1});
}

// Reads a file of the model's tensors, and one more tensor in the token table's shape with all elements `value`.
void read_weights(const std::string& name, float value) {
  const auto model = tied_model();
  std::vector<models::TensorSpec> tensors;
  for (const auto& unit : model->units)
    for (const models::Parameter& p : unit->parameters()) tensors.push_back({p.name, device::DType::fp32, p.shape});
  tensors.push_back({name, device::DType::fp32, tensors[0].shape});
  std::string file = models::safetensors_header(tensors);
  for (const models::TensorSpec& t : tensors) {
    const std::vector<float> values(t.bytes() / sizeof(float), &t == &tensors.back() ? value : 0.5f);
    file.append(reinterpret_cast<const char*>(values.data()), t.bytes());
  }
  const tests::ScratchFolder folder;
  folder.write("model.safetensors", file);
  std::vector<float> read(3);
  stored_weights(*model, folder.path())->read(0, 0, 2, read);
  EXPECT_EQ(read, (std::vector<float>{0.5f, 0.5f, 0.5f}));
}

// Some writers store a shared tensor once per unit that uses it. The copies must be equal.
TEST(WeightsTest, ASharedTensorMayBeStoredTwice) {
  EXPECT_NO_THROW(read_weights("lm_head.weight", 0.5f));
  EXPECT_FAILURE(
      read_weights("lm_head.weight", 0.25f), Exit::usage,
      HasSubstr("lm_head.weight differs from transformer.wte.weight, and model.config.tie_word_embeddings ties"));
  EXPECT_FAILURE(read_weights("head.weight", 0.5f), Exit::corrupt, HasSubstr("head.weight does not belong to"));
}

// Weights from a file of a small BERT's tensors under their renamed names, with the tensor's place in the model as the
// value of its elements; and of `more`, tensors that the model lacks.
std::unique_ptr<WeightSource> bert_weights(const models::Model& bert, const tests::ScratchFolder& folder,
                                           const std::function<std::string(std::string)>& renamed,
                                           std::vector<models::TensorSpec> more = {}) {
  std::vector<models::TensorSpec> tensors;
  for (const auto& unit : bert.units)
    for (const models::Parameter& p : unit->parameters())
      tensors.push_back({renamed(p.name), device::DType::fp32, p.shape});
  tensors.insert(tensors.end(), more.begin(), more.end());
  std::string file = models::safetensors_header(tensors);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::vector<float> values(tensors[i].bytes() / sizeof(float), static_cast<float>(i));
    file.append(reinterpret_cast<const char*>(values.data()), tensors[i].bytes());
  }
  folder.write("model.safetensors", file);
  return stored_weights(bert, folder.path());
}

std::unique_ptr<models::Model> small_bert() {
  models::RunShape run{1, 4, device::DType::fp32, 1};
  run.objective = models::Objective::masked_lm;
  return make_model(models::Config::parse(R"({"model_type":"bert","hidden_size":8,"num_attention_heads":2,
                                              "num_hidden_layers":1,"intermediate_size":12,"vocab_size":5,
                                              "max_position_embeddings":4})",
                                          "config.json"),
                    run);
}

// A classifier of three classes read as one of two: only the layer that scores them is initialised at random, whatever
// the file has.
TEST(WeightsTest, InitialisesANewHeadAndReadsTheRest) {
  const auto classifier = [](const std::string& names) {
    models::RunShape run{1, 4, device::DType::fp32, 1};
    run.objective = models::Objective::sequence_classification;
    return make_model(models::Config::parse(R"({"model_type":"bert","hidden_size":8,"num_attention_heads":2,
                                                "num_hidden_layers":1,"intermediate_size":12,"vocab_size":5,
                                                "max_position_embeddings":4,"id2label":)" +
                                                names + "}",
                                            "config.json"),
                      run);
  };
  const auto of_three = classifier(R"({"0":"a","1":"b","2":"c"})"), of_two = classifier(R"({"0":"x","1":"y"})");
  const tests::ScratchFolder folder;
  (void)bert_weights(*of_three, folder, [](std::string name) { return name; });
  EXPECT_FAILURE(stored_weights(*of_two, folder.path()), Exit::corrupt, HasSubstr("classifier.weight of shape [2, 8]"));
  for (const auto* model : {of_two.get(), of_three.get()}) {
    const auto weights = stored_weights(*model, folder.path(), 7, true), drawn = random_weights(*model, 7);
    EXPECT_THAT(weights->initialised(), testing::ElementsAre("classifier.weight", "classifier.bias"));
    std::size_t place = 0;
    for (std::size_t unit = 0; unit < model->units.size(); ++unit)
      for (std::size_t p = 0; p < model->units[unit]->parameters().size(); ++p, ++place) {
        const models::Parameter& parameter = model->units[unit]->parameters()[p];
        std::vector<float> read(parameter.size()), expected(parameter.size(), static_cast<float>(place));
        weights->read(unit, p, 0, read);
        if (parameter.name.starts_with("classifier.")) drawn->read(unit, p, 0, expected);
        EXPECT_EQ(read, expected) << parameter.name;
      }
  }
}

// These are TensorFlow's names of a norm's gamma and beta.
TEST(WeightsTest, ReadsOldNamesOfBertsNorms) {
  const auto bert = small_bert();
  const tests::ScratchFolder folder;
  std::size_t renamed = 0;
  const auto weights = bert_weights(*bert, folder, [&](std::string name) {
    for (const auto& [now, then] :
         {std::pair{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}})
      if (name.ends_with(now)) {
        name.replace(name.size() - std::string_view(now).size(), std::string::npos, then);
        ++renamed;
      }
    return name;
  });
  EXPECT_EQ(renamed, 8u) << "the embedding's, two of the block and the head's";
  EXPECT_EQ(weights->initialised(), std::vector<std::string>{});
  float place = 0;
  for (std::size_t unit = 0; unit < bert->units.size(); ++unit)
    for (std::size_t p = 0; p < bert->units[unit]->parameters().size(); ++p) {
      float read = -1;
      weights->read(unit, p, 0, {&read, 1});
      EXPECT_EQ(read, place++) << bert->units[unit]->parameters()[p].name;
    }
}

// Only layers that another objective would train are named. Nobody needs computed tables.
TEST(WeightsTest, NamesHeadsOfOtherObjectives) {
  const auto bert = small_bert();
  const tests::ScratchFolder folder;
  const auto as_is = [](std::string name) { return name; };
  EXPECT_EQ(bert_weights(*bert, folder, as_is)->left_out(), std::vector<std::string>{});
  const device::DType fp32 = device::DType::fp32;
  const auto weights = bert_weights(*bert, folder, as_is,
                                    {{"bert.pooler.dense.weight", fp32, {8, 8}},
                                     {"bert.pooler.dense.bias", fp32, {8}},
                                     {"classifier.weight", fp32, {3, 8}},
                                     {"bert.embeddings.position_ids", fp32, {1, 4}}});
  EXPECT_EQ(weights->left_out(), (std::vector<std::string>{"bert.pooler.dense", "classifier"}));
}

// The refusal names the prefix and gives a command that removes it. Without it, the files are transformers'.
TEST(WeightsTest, RefusesTensorsOfAWrappedModelWithAdvice) {
  const auto bert = small_bert();
  const auto refused = [&](const char* prefix) {
    const tests::ScratchFolder folder;
    return std::string(tests::failure_of([&] {
                         bert_weights(*bert, folder, [&](const std::string& name) { return prefix + name; });
                       }).what());
  };
  EXPECT_THAT(refused("module."), AllOf(HasSubstr("begins with module."), HasSubstr("inside DistributedDataParallel:"),
                                        HasSubstr("python3 -c"), testing::EndsWith(" module.")));
  EXPECT_THAT(refused("_orig_mod."), HasSubstr("inside torch.compile:"));
  EXPECT_THAT(refused("module._orig_mod."), HasSubstr("inside DistributedDataParallel and torch.compile:"));
  EXPECT_THAT(refused("student."), HasSubstr("inside another one:"));

  const auto renamed = [&](const char* from, const char* to) {
    const tests::ScratchFolder folder;
    return std::string(tests::failure_of([&] {
                         bert_weights(*bert, folder, [&](std::string name) {
                           if (const std::size_t at = name.find(from); at != std::string::npos)
                             name.replace(at, std::string_view(from).size(), to);
                           return name;
                         });
                       }).what());
  };
  EXPECT_THAT(renamed("query.weight", "query.base_layer.weight"), HasSubstr("a model wrapped by peft"));
  EXPECT_THAT(renamed("layer.0.", "layer.0._orig_mod."), HasSubstr("take _orig_mod. out of the tensors' names"));
}

// A folder with a tied output layer has no separate layer to untie.
TEST(WeightsTest, ExplainsHowToMakeAMissingOutputLayer) {
  const auto model = [](bool tied) {
    return make_model(models::Config::parse(fmt::format(R"({{"model_type":"llama","hidden_size":8,"vocab_size":5,
        "num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":12,"tie_word_embeddings":{}}})",
                                                        tied),
                                            "config.json"),
                      {1, 4, device::DType::fp32, 1});
  };
  const tests::ScratchFolder folder;
  const auto tied = model(true), untied = model(false);
  (void)bert_weights(*tied, folder, [](std::string name) { return name; });
  EXPECT_THAT(tests::failure_of([&] { stored_weights(*untied, folder.path(), 0, false); }).what(),
              AllOf(HasSubstr("has no lm_head.weight"), HasSubstr("m.config.tie_word_embeddings = False")));
}

// A tied encoder has the other layers of its head, so the decoder is not one to initialise.
TEST(WeightsTest, ExplainsHowToMakeAMissingDecoder) {
  const auto model = [](bool tied) {
    models::RunShape shape{1, 4, device::DType::fp32, 1};
    shape.objective = models::Objective::masked_lm;
    return make_model(models::Config::parse(fmt::format(R"({{"model_type":"bert","hidden_size":8,"vocab_size":5,
        "num_attention_heads":2,"num_hidden_layers":1,"intermediate_size":12,"tie_word_embeddings":{}}})",
                                                        tied),
                                            "config.json"),
                      shape);
  };
  const tests::ScratchFolder folder;
  const auto tied = model(true), untied = model(false);
  (void)bert_weights(*tied, folder, [](std::string name) { return name; });
  EXPECT_THAT(tests::failure_of([&] { stored_weights(*untied, folder.path(), 0, false); }).what(),
              AllOf(HasSubstr("has no cls.predictions.decoder.weight"), HasSubstr("AutoModelForMaskedLM")));
}

// All heads that transformers or TRL has for a family are left out for other objectives. A tensor that belongs to no
// head is refused.
TEST(WeightsTest, OmitsHeadsOfAllClasses) {
  struct Head {
    std::string family;
    models::Objective objective;
    std::vector<std::string> tensors;
  };
  using enum models::Objective;
  const std::vector<std::string> words{"cls.predictions.transform.LayerNorm.gamma",
                                       "cls.predictions.transform.LayerNorm.beta",
                                       "cls.predictions.transform.dense.weight",
                                       "cls.predictions.decoder.weight",
                                       "cls.predictions.bias",
                                       "cls.seq_relationship.weight",
                                       "cls.seq_relationship.bias"};
  const std::vector<std::string> answers{"qa_outputs.weight", "qa_outputs.bias"};
  for (const auto& [family, objective, names] : {Head{"bert", sequence_classification, words},
                                                 {"bert", sequence_classification, answers},
                                                 {"bert", token_classification, words},
                                                 {"bert", masked_lm, answers},
                                                 {"roberta", sequence_classification, answers},
                                                 {"roberta", sequence_classification, {"classifier.weight"}},
                                                 {"roberta", token_classification, {"classifier.out_proj.weight"}},
                                                 {"distilbert", sequence_classification, answers},
                                                 {"modernbert", masked_lm, {"classifier.weight", "classifier.bias"}},
                                                 {"gpt2", causal_lm, {"multiple_choice_head.summary.weight"}},
                                                 {"gpt2", causal_lm, {"score.weight", "v_head.summary.bias"}},
                                                 {"llama", causal_lm, answers},
                                                 {"llama", sequence_classification, {"v_head.summary.weight"}}}) {
    models::RunShape run{1, 4, device::DType::fp32, 1};
    run.objective = objective;
    const auto model =
        make_model(models::Config::parse(R"({"model_type":")" + family + R"(","hidden_size":8,"num_attention_heads":2,
            "num_hidden_layers":1,"intermediate_size":12,"vocab_size":5,"max_position_embeddings":8,"pad_token_id":0})",
                                         "config.json"),
                   run);
    const auto as_is = [](std::string name) { return name; };
    std::vector<models::TensorSpec> more;
    for (const std::string& name : names) more.push_back({name, device::DType::fp32, {2, 8}});
    const tests::ScratchFolder folder;
    EXPECT_NO_THROW(bert_weights(*model, folder, as_is, more)) << family << " " << names[0];
    more.push_back({"classifer.weight", device::DType::fp32, {2, 8}});
    EXPECT_FAILURE(bert_weights(*model, folder, as_is, more), Exit::corrupt,
                   HasSubstr("classifer.weight does not belong to this"));
  }
}

}  // namespace
}  // namespace strata::runtime
