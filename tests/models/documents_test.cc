// Documents that share a sequence, in whole models: nothing of one is in another.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/ops/cross_entropy.h"
#include "models/files/config.h"
#include "models/model.h"
#include "tests/models/reference.h"

namespace strata::models {
namespace {

using device::DType;
using testing::Buffer;
using testing::Doubles;

// The columns of one sequence.
struct Columns {
  std::vector<std::uint32_t> tokens, positions;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents;

  void add_document(std::size_t length, std::mt19937_64& random) {
    const auto first = static_cast<std::uint32_t>(tokens.size()), rows = static_cast<std::uint32_t>(length);
    for (std::uint32_t i = 0; i < rows; ++i) {
      tokens.push_back(static_cast<std::uint32_t>(random() % 50));
      positions.push_back(i);
      labels.push_back(i + 1 < rows ? static_cast<std::int32_t>(random() % 50) : device::kIgnoredLabel);
      documents.push_back({first, first + rows});
    }
  }
  void add_leftover(std::size_t rows) {
    tokens.resize(tokens.size() + rows);
    positions.resize(tokens.size());
    labels.resize(tokens.size(), device::kIgnoredLabel);
    documents.resize(tokens.size());
  }
  // The document that starts at `row`, in a sequence of its own.
  Columns alone(std::size_t row) const {
    const std::size_t end = documents[row].end;
    const auto cut = [&](const auto& column) { return std::decay_t<decltype(column)>(&column[row], &column[0] + end); };
    Columns out{cut(tokens), cut(positions), cut(labels), cut(documents)};
    for (device::RowRange& d : out.documents) d = {0, static_cast<std::uint32_t>(end - row)};
    return out;
  }
};

// Every gradient of the model one behind the other, those of what the loss shares last; the summed loss; and what the
// head gets, [rows, hidden].
struct Learnt {
  double loss = 0;
  Doubles gradients, hidden;
};

Learnt learn(const std::string& json, const Columns& columns, DType dtype = DType::fp32) {
  const RunShape run{.batch = 1, .seq = columns.tokens.size(), .dtype = dtype, .threads = 2, .packed = true};
  const auto model = make_model(Config::parse(json, "config.json"), run);
  AbortToken abort;
  device::Lane lane("test", run.threads, 0, abort);
  device::StepScalars scalars{.loss_gradient = 0.125f};
  Buffer constants(model->constants_bytes / sizeof(float) + 1, DType::fp32);
  model->fill_constants(constants.view().data);

  std::mt19937_64 random(3);  // the same parameters whatever the sequence
  std::vector<Buffer> parameters, gradients, saved, x;
  for (const auto& unit : model->units) {
    Buffer& flat = parameters.emplace_back(unit->size(), run.dtype);
    for (const Parameter& p : unit->parameters())
      for (std::size_t i = 0; i < p.size(); ++i)
        flat.set(p.offset + i, (p.init.deviation > 0 ? 0 : static_cast<double>(p.init.constant)) +
                                   std::normal_distribution<double>(0, 0.2)(random));
    gradients.emplace_back(unit->size(), run.dtype);
    saved.emplace_back(unit->bytes().saved / sizeof(float), DType::fp32);
    x.emplace_back(run.tokens() * model->hidden, run.dtype);  // of the unit; behind the last one's: dx
  }
  Buffer dx(run.tokens() * model->hidden, run.dtype);
  const auto& shared = model->loss_unit().shared();
  Buffer shared_gradients(shared ? shared->elements.size() : 0, run.dtype);

  const auto context = [&](std::size_t unit, const Buffer& workspace) {
    Context c{};
    c.batch = {columns.tokens.data(), columns.labels.data(), columns.positions.data(), columns.documents.data()};
    c.scalars = &scalars;
    c.constants = constants.view().data;
    c.parameters = {parameters[unit].view()};
    c.workspace = workspace.view();
    return c;
  };
  const std::size_t last = model->units.size() - 1;
  for (std::size_t u = 0; u < last; ++u) {
    const Unit& unit = *model->units[u];
    const Buffer workspace(unit.bytes().forward_workspace / sizeof(float), DType::fp32);
    for (std::size_t part = 0; part < unit.parts().size(); ++part)
      unit.forward(lane, context(u, workspace), part, x[u].view(), x[u + 1].view(), saved[u].view());
    lane.synchronize();
  }
  Learnt out;
  {
    const LossUnit& head = model->loss_unit();
    const Buffer workspace(head.loss_workspace() / sizeof(float), DType::fp32);
    Context c = context(last, workspace);
    if (shared) {
      c.shared = {parameters[shared->unit].view().sub(shared->elements.begin, shared->elements.size())};
      c.shared_gradients = {shared_gradients.view()};
    }
    device::ExactSum loss;
    head.loss(lane, c, x[last].view(), &loss, dx.view(), gradients[last].view());
    lane.synchronize();
    out.loss = loss.round();
    out.hidden = x[last].doubles();
  }
  for (std::size_t u = last; u-- > 0;) {
    const Unit& unit = *model->units[u];
    const Buffer workspace(unit.bytes().backward_workspace / sizeof(float), DType::fp32);
    for (std::size_t part = unit.parts().size(); part-- > 0;)
      unit.backward(lane, context(u, workspace), part, x[u].view(), saved[u].view(), dx.view(), dx.view(),
                    {gradients[u].view()});
    lane.synchronize();
  }
  for (std::size_t u = 0; u <= last; ++u)
    for (const Parameter& p : model->units[u]->parameters())
      for (std::size_t i = 0; i < p.size(); ++i) out.gradients.push_back(gradients[u][p.offset + i]);
  for (std::size_t i = 0; shared && i < 50 * model->hidden; ++i) out.gradients.push_back(shared_gradients[i]);
  return out;
}

class DocumentsTest : public ::testing::TestWithParam<const char*> {};

// fp32 sums in other groups: a few units in the last place of what they sum, 1e-6 of a gradient's norm.
TEST_P(DocumentsTest, ASequenceLearnsWhatItsDocumentsLearnAlone) {
  std::mt19937_64 random(7);
  Columns packed;
  for (const std::size_t length : {5, 70, 1, 2, 40}) packed.add_document(length, random);
  packed.add_leftover(10);
  const Learnt together = learn(GetParam(), packed);
  Learnt sum;
  sum.gradients.resize(together.gradients.size());
  for (std::size_t row = 0; row < packed.documents.size(); ++row) {
    if (packed.documents[row].end == 0 || packed.documents[row].first != row) continue;
    const Learnt alone = learn(GetParam(), packed.alone(row));
    sum.loss += alone.loss;
    sum.gradients = testing::sum(std::move(sum.gradients), alone.gradients);
  }
  EXPECT_GT(sum.loss, 1);
  EXPECT_NEAR(together.loss, sum.loss, 1e-6 * sum.loss);
  EXPECT_LT(testing::relative_error(together.gradients, sum.gradients), 2e-6);
}

// The forward of a document: alone at the front of the sequence, the rest of which holds nothing; beside others.
TEST_P(DocumentsTest, TheForwardsBitsDoNotDependOnWhereADocumentLies) {
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    std::mt19937_64 random(7);
    Columns packed;
    for (const std::size_t length : {5, 70, 1, 42}) packed.add_document(length, random);
    packed.add_leftover(10);
    const Learnt together = learn(GetParam(), packed, dtype);
    const std::size_t hidden = together.hidden.size() / packed.tokens.size();
    for (std::size_t row = 0; row < packed.documents.size(); ++row) {
      if (packed.documents[row].end == 0 || packed.documents[row].first != row) continue;
      Columns front = packed.alone(row);
      const std::size_t rows = front.tokens.size();
      front.add_leftover(packed.tokens.size() - rows);
      const Doubles alone = learn(GetParam(), front, dtype).hidden;
      const auto from = together.hidden.begin() + static_cast<std::ptrdiff_t>(row * hidden);
      EXPECT_TRUE(std::equal(from, from + static_cast<std::ptrdiff_t>(rows * hidden), alone.begin()))
          << name_of(dtype) << ", the document at row " << row;
    }
  }
}

// What the leftover holds, and what a document's neighbours are, changes no bit of what it learns.
TEST_P(DocumentsTest, WhatIsInNoDocumentTeachesNothing) {
  std::mt19937_64 random(7);
  Columns packed;
  for (const std::size_t length : {33, 70}) packed.add_document(length, random);
  packed.add_leftover(9);
  Columns other = packed;
  for (std::size_t i = 103; i < 112; ++i) other.tokens[i] = 7;
  const Learnt once = learn(GetParam(), packed), again = learn(GetParam(), other);
  EXPECT_EQ(once.loss, again.loss);
  EXPECT_EQ(once.gradients, again.gradients);
}

INSTANTIATE_TEST_SUITE_P(
    Families, DocumentsTest,
    ::testing::Values(
        R"({"model_type":"gpt2","n_embd":32,"n_head":4,"n_layer":2,"n_positions":128,"vocab_size":50,
            "resid_pdrop":0,"attn_pdrop":0,"embd_pdrop":0})",
        R"({"model_type":"llama","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":10,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":128,"vocab_size":50})",
        R"({"model_type":"mistral","hidden_size":32,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":8,
            "intermediate_size":48,"num_hidden_layers":2,"max_position_embeddings":128,"vocab_size":50,
            "sliding_window":20})"));

}  // namespace
}  // namespace strata::models
