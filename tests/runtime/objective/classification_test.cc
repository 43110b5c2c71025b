#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <utility>

#include "device/ops/losses/losses.h"
#include "models/files/config.h"
#include "runtime/checkpoint/export/model_folder.h"
#include "runtime/data/files/labels.h"
#include "runtime/job/make_job.h"
#include "runtime/job/score_memory.h"
#include "runtime/objective/objective.h"
#include "runtime/objective/rules.h"
#include "tests/failure.h"
#include "tests/runtime/data/token_folder.h"
#include "tests/scratch_folder.h"

namespace strata::runtime {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
constexpr std::int32_t kNone = device::kIgnoredLabel;

// A token file with two documents of 3 and 2 tokens and these lines of labels.
class ClassificationTest : public testing::Test {
 protected:
  TokenFile file(const std::string& lines, const std::string& problem, std::vector<std::string> names) const {
    const auto path = folder_.path() / "t.bin";
    const std::vector<std::uint16_t> tokens = {5, 6, 7, 8, 9};
    const std::vector<std::uint64_t> begins = {0, 3};
    const auto bytes = [](const auto& values) {
      return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    };
    const auto hash = [](const std::string& text) {
      return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
    };
    folder_.write("t.bin", bytes(tokens));
    folder_.write("t.bin.documents", bytes(begins));
    folder_.write("t.bin.labels.jsonl", lines);
    TokenSidecar sidecar{.vocab_size = 60, .width = 2, .hash = hash(bytes(tokens)), .count = 5};
    sidecar.documents = {2, hash(bytes(begins))};
    sidecar.labels = TokenSidecar::Labels{2, hash(lines), problem, std::move(names)};
    sidecar.labels->vectors = vectors_;
    folder_.write("t.bin.json", to_json(sidecar));
    return {path, 60};
  }
  tests::ScratchFolder folder_;
  bool vectors_ = false;
};

std::vector<std::int32_t> values_of(const LabelColumn& column) {
  std::vector<std::int32_t> out;
  for (std::uint64_t i = 0; i < column.size(); ++i) out.push_back(column[i]);
  return out;
}

std::vector<std::int32_t> labels_of(const TokenFile& file, const models::Classes& classes, bool per_token) {
  LabelColumn out = column_for(classes);
  read_labels(file, classes, per_token, out);
  return values_of(out);
}

models::Classes classes(std::vector<std::string> names, device::ClassTarget target = device::ClassTarget::one) {
  return {std::move(names), true, target};
}

TEST_F(ClassificationTest, AMissingLabelFileGivesAdvice) {
  const auto one = file("{\"label\": \"b\"}\n{\"label\": 0}\n", "single_label_classification", {"0", "b"});
  std::filesystem::remove(folder_.path() / "t.bin.labels.jsonl");
  EXPECT_FAILURE(labels_of(one, classes({"a", "b"}), false), Exit::usage,
                 AllOf(HasSubstr("t.bin.labels.jsonl is missing"), HasSubstr("tokenize again")));
}

// Resolves a recipe for the file: the resulting classes, and the key num_labels.
class ResolvedClassesTest : public ClassificationTest {
 protected:
  models::Classes resolved(const std::vector<std::string>& names, const std::string& more = "",
                           const std::string& problem = "single_label_classification") {
    (void)file("{\"label\": 0}\n{\"label\": 0}\n", problem, names);
    folder_.write("m/config.json",
                  R"({"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1)" +
                      (more.empty() ? "" : ", " + more) + "}");
    Recipe recipe;
    recipe.model.path = folder_.path() / "m";
    recipe.model.init = init_;
    recipe.data.train = {{{(folder_.path() / "t.bin").string()}}};
    recipe.training.objective = models::Objective::sequence_classification;
    workload_ = open_workload(recipe);
    resolve_classes(workload_);
    return models::read_classes(workload_.config(), *recipe.training.objective);
  }
  Workload workload_;
  Init init_ = Init::random;
};

// The recipe does not say what to train, and the model's own objective would ignore the labels, so they are refused.
TEST_F(ResolvedClassesTest, RefusesLabelsThatTheModelsObjectiveIgnores) {
  for (const char* architectures : {"[\"BertForMaskedLM\"]", "[\"BertModel\"]"})
    for (const bool validates : {false, true}) {
      (void)resolved({"a", "b"}, fmt::format("\"architectures\": {}", architectures));
      workload_.recipe.training.objective.reset();
      if (validates) workload_.recipe.data.validation = std::exchange(workload_.recipe.data.train, {})[0].files;
      workload_.resolved.config.clear();
      EXPECT_FAILURE(resolve_objective(workload_), Exit::usage,
                     AllOf(HasSubstr("t.bin has labels"), HasSubstr("the recipe has no training.objective"),
                           HasSubstr("= \"sequence_classification\""), HasSubstr("\"masked_lm\" to ignore")));
      workload_.recipe.training.objective = models::Objective::masked_lm;
      EXPECT_NO_THROW(resolve_objective(workload_)) << "asked for";
    }
  // The labels fit a classifier's own objective.
  (void)resolved({"a", "b"}, "\"architectures\": [\"BertForSequenceClassification\"]");
  workload_.recipe.training.objective.reset();
  EXPECT_NO_THROW(resolve_objective(workload_));
  EXPECT_EQ(workload_.objective(), models::Objective::sequence_classification);
  EXPECT_FALSE(workload_.recipe.training.objective) << "the recipe stays what the user wrote";
}

TEST_F(ResolvedClassesTest, NamesTheObjectiveForTheLabels) {
  EXPECT_FAILURE(resolved({"a", "b"}, "", "token_classification"), Exit::usage,
                 AllOf(HasSubstr("t.bin has labels of words"), HasSubstr("set it to \"token_classification\"")));
}

TEST_F(ResolvedClassesTest, KeepsAnExistingClassifiersNumberOfClasses) {
  const std::string names = R"("id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "LABEL_2"}, "architectures": )";
  const std::string classifier = names + R"(["BertForSequenceClassification"])";
  init_ = Init::pretrained;
  EXPECT_THAT(resolved({"0", "2"}, classifier).names, ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_THAT(resolved({"LABEL_2", "LABEL_0"}, classifier).names, ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_THAT(resolved({"a", "b", "c"}, classifier).names, ElementsAre("a", "b", "c"));
  EXPECT_FAILURE(resolved({"a", "b"}, classifier), Exit::usage,
                 AllOf(HasSubstr("has 3 classes (LABEL_0"), HasSubstr("model.new_head = true")));
  EXPECT_FAILURE(resolved({"0", "1", "2", "3"}, classifier), Exit::usage, HasSubstr("t.bin has 4 classes"));
  // Placeholder names of a model that has no layer of classes yet.
  EXPECT_THAT(resolved({"a", "b"}, names + R"(["BertForMaskedLM"])").names, ElementsAre("a", "b"));
  init_ = Init::random;
  EXPECT_THAT(resolved({"a", "b"}, classifier).names, ElementsAre("a", "b"));
}

// The weights' scores are in the model's order, but the data sort their names by bytes: 0, 1, 10, 2.
TEST_F(ResolvedClassesTest, KeepsTheOrderOfTheModelsScores) {
  std::vector<std::string> own, numbers;
  for (int i = 0; i < 12; ++i) {
    own.push_back(fmt::format("LABEL_{}", i));
    numbers.push_back(fmt::format("{}", i));
  }
  std::string names;
  for (int i = 0; i < 12; ++i) names += fmt::format("{}\"{}\": \"LABEL_{}\"", i > 0 ? ", " : "", i, i);
  const std::string architecture = R"("architectures": ["BertForSequenceClassification"], )";
  const std::string named = architecture + "\"id2label\": {" + names + "}";
  init_ = Init::pretrained;
  for (std::vector<std::string> of_data : {own, numbers}) {
    EXPECT_EQ(resolved(of_data, named).names, own);
    std::sort(of_data.begin(), of_data.end());
    EXPECT_EQ(resolved(of_data, named).names, own) << of_data[2];
    EXPECT_EQ(resolved(of_data, architecture + "\"num_labels\": 12").names, own) << of_data[2];
    EXPECT_EQ(resolved(of_data, named, "multi_label_classification").names, own) << of_data[2];
  }
  // Other names replace placeholders, in the order of the data.
  EXPECT_THAT(resolved({"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"}, named).names[2], "c");
}

TEST_F(ResolvedClassesTest, NumLabelsMustAgreeWithTheData) {
  EXPECT_THAT(resolved({"a", "b", "c"}).names, ElementsAre("a", "b", "c"));
  EXPECT_THAT(resolved({"a", "b", "c"}, "\"num_labels\": 3").names, ElementsAre("a", "b", "c"));
  EXPECT_FAILURE(resolved({"a", "b", "c"}, "\"num_labels\": 5"), Exit::usage,
                 AllOf(HasSubstr("num_labels of "), HasSubstr("is 5"), HasSubstr("t.bin has 3 classes (a, b, c)")));
  EXPECT_THAT(resolved({"0", "3"}, "\"num_labels\": 4").names, ElementsAre("LABEL_0", "LABEL_1", "LABEL_2", "LABEL_3"))
      << "numbers of classes, of which some have no text";
  EXPECT_FAILURE(resolved({"0", "4"}, "\"num_labels\": 4"), Exit::usage, HasSubstr("has 2 classes (0, 4)"));
  const auto number = resolved({"0", "3", "5"}, "\"num_labels\": 1");
  EXPECT_THAT(number.names, ElementsAre("LABEL_0"));
  EXPECT_EQ(number.target, device::ClassTarget::number) << "as in transformers";
  EXPECT_FAILURE(resolved({}, "\"num_labels\": 3", "regression"), Exit::usage,
                 AllOf(HasSubstr("is 3"), HasSubstr("numbers with a decimal point")));
  const auto alone = resolved({"0", "3", "5"}, "\"problem_type\": \"regression\"");
  EXPECT_THAT(alone.names, ElementsAre("LABEL_0")) << "nothing else gives the number";
}

// Columns of vectors are the model's classes in order.
TEST_F(ResolvedClassesTest, VectorsMustHaveAnElementPerClass) {
  const std::string named = R"("problem_type": "multi_label_classification", "id2label": {"0": "mild", "1": "harsh"})";
  vectors_ = true;
  EXPECT_THAT(resolved({"LABEL_0", "LABEL_1"}, named, "multi_label_classification").names,
              ElementsAre("mild", "harsh"));
  EXPECT_FAILURE(resolved({"LABEL_0", "LABEL_1", "LABEL_2"}, named, "multi_label_classification"), Exit::usage,
                 HasSubstr("has 3 classes (LABEL_0, LABEL_1, LABEL_2)"));
  EXPECT_THAT(resolved({"LABEL_0", "LABEL_1", "LABEL_2"}, "", "multi_label_classification").names,
              ElementsAre("LABEL_0", "LABEL_1", "LABEL_2"));
  EXPECT_FAILURE(resolved({"LABEL_0", "LABEL_1"}, "\"num_labels\": 4", "multi_label_classification"), Exit::usage,
                 HasSubstr("is 4"));
  const auto columns =
      file("{\"labels\": [\"LABEL_1\"]}\n{\"labels\": []}\n", "multi_label_classification", {"LABEL_0", "LABEL_1"});
  EXPECT_THAT(labels_of(columns, classes({"mild", "harsh"}, device::ClassTarget::many), false), ElementsAre(2, 0));
}

// Names that look like columns may still be names, and the data may lack some of them.
TEST_F(ResolvedClassesTest, ListsOfNamesAreNotVectors) {
  const std::string many = R"("problem_type": "multi_label_classification")";
  const std::string named = many + R"(, "id2label": {"0": "LABEL_0", "1": "LABEL_1", "2": "toxic"})";
  for (const char* problem : {"multi_label_classification", "single_label_classification"}) {
    EXPECT_THAT(resolved({"LABEL_1"}, named, problem).names, ElementsAre("LABEL_0", "LABEL_1", "toxic"));
    EXPECT_EQ(resolved({"LABEL_2", "LABEL_3"}, "\"num_labels\": 4", problem).names.size(), 4u);
  }
  vectors_ = true;
  EXPECT_FAILURE(resolved({"LABEL_0"}, named, "multi_label_classification"), Exit::usage, HasSubstr("has one class"));
}

TEST_F(ResolvedClassesTest, RecordsTheDatasFormatInTheConfiguration) {
  (void)resolved({"a", "b"});
  const models::Config config = workload_.config();
  EXPECT_FALSE(config.bool_or("strata_trained_on.pairs", true));
  EXPECT_FALSE(config.has("strata_trained_on.tokenizer_hash")) << "the sidecar names none";
}

TEST_F(ClassificationTest, LabelsAreNumbersOfTheModelsClasses) {
  const auto one = file("{\"label\": \"b\"}\n{\"label\": 0}\n", "single_label_classification", {"0", "b"});
  EXPECT_THAT(labels_of(one, classes({"a", "b"}), false), ElementsAre(1, 0));
  const auto uniform = file("{\"label\": \"b\"}\n{\"label\": \"b\"}\n", "single_label_classification", {"0", "b"});
  EXPECT_THAT(labels_of(uniform, classes({"a", "b"}), false), ElementsAre(1, 1)) << "a line like the one before";
  const auto other = file("{\"label\": \"b\"}\n{\"label\": 0}\n", "single_label_classification", {"0", "b"});
  EXPECT_FAILURE(labels_of(other, classes({"a", "c"}), false), Exit::usage,
                 HasSubstr("line 1: the label \"b\" is not one of the model's 2 classes (a, c)"));
  EXPECT_FAILURE(labels_of(one, classes({"a", "b"}), true), Exit::usage,
                 HasSubstr("is for single_label_classification, but the model is for token_classification"));
  const auto many = file("{\"labels\": [\"c\", \"a\"]}\n{\"labels\": []}\n", "multi_label_classification", {"a", "c"});
  EXPECT_THAT(labels_of(many, classes({"a", "b", "c"}, device::ClassTarget::many), false), ElementsAre(0b101, 0));
  const auto numbers = file("{\"label\": 2}\n{\"label\": -0.5}\n", "regression", {});
  EXPECT_THAT(labels_of(numbers, classes({"LABEL_0"}, device::ClassTarget::number), false),
              ElementsAre(std::bit_cast<std::int32_t>(2.0f), std::bit_cast<std::int32_t>(-0.5f)));
  const auto words =
      file("{\"labels\": [null, \"x\", null]}\n{\"labels\": [\"y\", null]}\n", "token_classification", {"x", "y"});
  EXPECT_THAT(labels_of(words, classes({"x", "y"}), true), ElementsAre(kNone, 0, kNone, 1, kNone));
}

// Every kind of line with every kind of model: one label is a list of one, and no other kinds are interchangeable.
TEST_F(ClassificationTest, AcceptsOneLabelForMultiLabelModels) {
  using device::ClassTarget;
  const auto one = file("{\"label\": \"c\"}\n{\"label\": 0}\n", "single_label_classification", {"0", "c"});
  EXPECT_THAT(labels_of(one, classes({"a", "b", "c"}, ClassTarget::many), false), ElementsAre(0b100, 0b001));
  const auto list = file("{\"labels\": [\"a\"]}\n{\"label\": \"a\"}\n", "single_label_classification", {"a", "c"});
  EXPECT_FAILURE(labels_of(list, classes({"a", "c"}), false), Exit::corrupt, HasSubstr("line 1: expected a label"));
  EXPECT_FAILURE(labels_of(list, classes({"LABEL_0"}, ClassTarget::number), false), Exit::corrupt,
                 HasSubstr("line 1: expected a label"));
  const auto word = file("{\"labels\": [\"a\", null, null]}\n{\"label\": \"a\"}\n", "token_classification", {"a", "c"});
  EXPECT_FAILURE(labels_of(word, classes({"a", "c"}), true), Exit::corrupt, HasSubstr("line 2: expected a label"));
}

// If numbers name classes, a missing number is not an index into their list.
TEST_F(ClassificationTest, NumericNamesAreNotIndices) {
  const auto gap = file("{\"label\": 2}\n{\"label\": 1}\n", "single_label_classification", {"1", "2"});
  EXPECT_FAILURE(labels_of(gap, classes({"0", "2"}), false), Exit::usage,
                 HasSubstr("line 2: the label 1 is not one of the model's 2 classes (0, 2)"));
  EXPECT_FAILURE(labels_of(gap, classes({"2", "other", "4"}), false), Exit::usage,
                 HasSubstr("line 2: the label 1 is not one of the model's 3 classes (2, other, 4)"));
  EXPECT_THAT(labels_of(gap, classes({"a", "b", "c"}), false), ElementsAre(2, 1));
  EXPECT_THAT(labels_of(gap, classes({"1", "2"}), false), ElementsAre(1, 0));
  // Neither is a number in quotes.
  const auto quoted = file("{\"label\": \"2\"}\n{\"label\": \"1\"}\n", "single_label_classification", {"1", "2"});
  EXPECT_THAT(labels_of(quoted, classes({"LABEL_0", "LABEL_1", "LABEL_2"}), false), ElementsAre(2, 1));
  EXPECT_FAILURE(labels_of(quoted, classes({"0", "2"}), false), Exit::usage,
                 HasSubstr("line 2: the label \"1\" is not one of the model's 2 classes (0, 2)"));
}

// A label has 31 bits for classes; above that, it numbers a set of them.
TEST_F(ClassificationTest, AboveThe31BitsOfALabelClassesAreInSets) {
  std::vector<std::string> names;
  for (int i = 0; i < 90; ++i) names.push_back(fmt::format("t{}", i));
  const auto made = file("{\"labels\": [\"t89\", \"t0\", \"t89\"]}\n{\"label\": \"t40\"}\n",
                         "multi_label_classification", {"t0", "t40", "t89"});
  const models::Classes many = classes(names, device::ClassTarget::many);
  LabelColumn column = column_for(many);
  ASSERT_NE(column.sets(), nullptr);
  read_labels(made, many, false, column);
  EXPECT_THAT(values_of(column), ElementsAre(0, 1));
  EXPECT_THAT(column.sets()->of(0), ElementsAre(89, 0, 89));
  EXPECT_THAT(column.sets()->of(1), ElementsAre(40));
  names.resize(31);
  EXPECT_EQ(column_for(classes(names, device::ClassTarget::many)).sets(), nullptr);
  EXPECT_EQ(column_for(classes({"a", "b"})).sets(), nullptr);

  // The sets of a sequence are those of its rows with a label, in order.
  const std::vector<std::int32_t> labels = {kNone, 1, kNone, 0, 1};
  std::vector<std::uint32_t> words(3 * 4, 7);
  const auto rest = write_class_sets(&column, labels, words);
  EXPECT_EQ(rest.size(), 3u);
  EXPECT_THAT(words, ElementsAre(0, 1u << 8, 0, 1, 0, 1u << 25, 0, 1u << 8, 0, 7, 7, 7));
  const LabelColumn bits(10);
  EXPECT_EQ(write_class_sets(&bits, labels, words).size(), words.size());
  EXPECT_EQ(write_class_sets(nullptr, labels, words).size(), words.size());
}

TEST_F(ClassificationTest, RefusesAFileThatContradictsItsSidecar) {
  auto made = file("{\"label\": \"a\"}\n", "single_label_classification", {"a", "b"});
  EXPECT_FAILURE(labels_of(made, classes({"a", "b"}), false), Exit::corrupt,
                 HasSubstr("has labels of 1 document and 1 token, but "));
  folder_.write("t.bin.labels.jsonl", "{\"label\": \"b\"}\n{\"label\": \"b\"}\n");
  EXPECT_FAILURE(labels_of(made, classes({"a", "b"}), false), Exit::corrupt, HasSubstr("has the hash"));
}

LabelColumn column(const std::vector<std::int32_t>& labels) {
  LabelColumn out(10);
  for (const std::int32_t label : labels) out.push_back(label);
  return out;
}

TEST(ClassRowTest, PaddingIsNotTheLastRow) {
  const std::vector<std::uint32_t> tokens{0, 5, 0, 6, 0, 0};
  EXPECT_EQ((ClassRow{.last = false, .padding = 0}.of(tokens)), 0u);
  EXPECT_EQ((ClassRow{.last = true}.of(tokens)), 5u);
  EXPECT_EQ((ClassRow{.last = true, .padding = 0}.of(tokens)), 3u);
  EXPECT_EQ((ClassRow{.last = true, .padding = 7}.of(tokens)), 5u);
  EXPECT_EQ((ClassRow{.last = true, .padding = 0}.of(std::vector<std::uint32_t>{0, 0})), 0u);
}

TEST_F(ClassificationTest, PutsADocumentsClassAtItsFirstOrLastRow) {
  const auto made = file("{\"label\": \"a\"}\n{\"label\": \"b\"}\n", "single_label_classification", {"a", "b"});
  const Documents documents(made);
  const Piece second{made, &documents, 1, 3, 5, 3, 2};
  std::vector<std::uint32_t> tokens(2), positions(2);
  std::vector<std::int32_t> labels(2);
  std::vector<device::RowRange> ranges(2);
  const Rows rows{tokens, labels, positions, ranges};
  for (const bool last : {false, true}) {
    const DocumentClasses labelling(column({7, 8}), {0}, {0}, {.last = last});
    EXPECT_EQ(labelling.most(second), 1u);
    labelling.fill(second, 0, rows);
    EXPECT_EQ(labels[last ? 1 : 0], 8);
    EXPECT_EQ(labels[last ? 0 : 1], kNone);
    const Piece cut{made, &documents, 0, 0, 3, 0, 2};
    EXPECT_FAILURE((void)labelling.most(cut), Exit::usage, HasSubstr("1 has 3 tokens, more than data.seq_len"));
  }
  const TokenClasses words(column({kNone, 4, kNone, 5, kNone}));
  EXPECT_EQ(words.most(second), 1u);
  words.fill(second, 0, rows);
  EXPECT_THAT(labels, ElementsAre(5, kNone));
}

// The plan includes an evaluation's memory for scores: for rows with a label, only of validation, and only as many as
// max_sequences allows.
TEST_F(ResolvedClassesTest, PlansMemoryForAnEvaluationsScores) {
  (void)resolved({"a", "b", "c"});
  folder_.write("m/config.json",
                R"({"model_type": "bert", "hidden_size": 32, "num_attention_heads": 2, "num_hidden_layers": 1,
                    "intermediate_size": 48, "max_position_embeddings": 64, "vocab_size": 60,
                    "id2label": {"0": "0", "1": "b", "2": "c"}})");
  const auto make = [&](bool evaluates, const std::string& objective, std::optional<std::int64_t> sequences = {},
                        std::int64_t seq_len = 8) {
    Recipe recipe;
    recipe.model.path = folder_.path() / "m";
    recipe.model.init = Init::random;
    recipe.data.seq_len = seq_len;
    recipe.data.packing = Packing::documents;
    recipe.data.validation = {(folder_.path() / "t.bin").string()};
    recipe.training.max_steps = 1;
    recipe.training.precision = device::DType::fp32;
    recipe.evaluation.max_sequences = sequences;
    if (!evaluates) {
      recipe.data.train = {{recipe.data.validation}};
      recipe.evaluation.every = 1;
    }
    recipe.training.objective =
        objective == "words" ? models::Objective::token_classification : models::Objective::sequence_classification;
    Workload workload = open_workload(recipe);
    resolve_workload(workload, evaluates);
    return make_job(workload, 2, capacity_of(recipe.memory, 1), evaluates ? Purpose::evaluate : Purpose::train);
  };
  const auto bytes = [](const StepPlan& plan) {
    return plan.score_buffer < 0 ? 0 : plan.buffers[static_cast<std::size_t>(plan.score_buffer)].bytes;
  };
  const auto scores = [](std::uint64_t rows) {
    models::Classes three;
    three.names.resize(3);
    return aligned(ScoreMemory(three, rows, 2, 16).bytes);
  };
  (void)file("{\"label\": \"b\"}\n{\"label\": 0}\n", "single_label_classification", {"0", "b", "c"});
  const Job evaluates = make(true, "texts");
  EXPECT_EQ(evaluates.data.scored_rows, 2u);
  EXPECT_EQ(bytes(evaluates.plan), scores(2));
  EXPECT_GT(evaluates.plan.chunks.bytes, 0u);
  // Each sequence of three tokens holds one text.
  EXPECT_EQ(make(true, "texts", 1, 3).data.scored_rows, 1u);
  const Job trains = make(false, "texts");
  EXPECT_EQ(bytes(trains.plan), 0u);
  ASSERT_TRUE(trains.evaluation);
  EXPECT_EQ(bytes(trains.evaluation->plan), scores(2));
  EXPECT_LE(trains.evaluation->plan.memory[0].peak, trains.plan.memory[0].peak) << "a step's memory has room for it";
  (void)file("{\"labels\": [null, \"b\", null]}\n{\"labels\": [\"c\", null]}\n", "token_classification",
             {"0", "b", "c"});
  const Job words = make(true, "words");
  EXPECT_EQ(words.data.scored_rows, 2u) << "words with a label count, not tokens";
  EXPECT_EQ(bytes(words.plan), scores(2));
}

}  // namespace
}  // namespace strata::runtime
