#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "device/ops/losses/losses.h"
#include "models/files/config.h"
#include "models/model.h"
#include "tests/models/unit_runner.h"

// A whole model's forward and backward over one sequence that holds documents, without plan or executor.
namespace strata::models::testing {

// The columns of one sequence.
struct Columns {
  std::vector<std::uint32_t> tokens, positions;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents;
  std::vector<std::uint32_t> types = {};  // of rows that it does not reach: 0

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
  // The document that starts at `row`, alone in a sequence.
  Columns alone(std::size_t row) const {
    const std::size_t end = documents[row].end;
    const auto cut = [&](const auto& column) { return std::decay_t<decltype(column)>(&column[row], &column[0] + end); };
    Columns out{cut(tokens), cut(positions), cut(labels), cut(documents)};
    for (device::RowRange& d : out.documents) d = {0, static_cast<std::uint32_t>(end - row)};
    return out;
  }
};

// Every gradient of the model by its parameter's name, with the loss's part of a shared one last; the summed loss; and
// the head's input, [rows, hidden].
struct Learnt {
  double loss = 0;
  std::vector<std::pair<std::string, Doubles>> gradients;
  Doubles hidden;

  Doubles all() const {
    Doubles out;
    for (const auto& [name, values] : gradients) out.insert(out.end(), values.begin(), values.end());
    return out;
  }
};

// One forward and backward of the model that `config` describes. Gradients are those of loss_gradient * the summed
// loss. `fill` sets a unit's parameters: (unit, its flat buffer). loss_rows: the rows that the loss takes, whose labels
// then come first; empty: all.
template <typename Fill>
Learnt learn(const Config& config, const Columns& columns, float loss_gradient, Fill&& fill, DType dtype = DType::fp32,
             std::span<const std::uint32_t> loss_rows = {}) {
  const RunShape run{.batch = 1,
                     .seq = columns.tokens.size(),
                     .dtype = dtype,
                     .threads = 2,
                     .packed = true,
                     .loss_rows = loss_rows.size()};
  std::vector<std::uint32_t> types = columns.types;
  types.resize(columns.tokens.size());
  const auto model = make_model(config, run);
  Columns placed = columns;
  place_padding({.tokens = placed.tokens,
                 .labels = placed.labels,
                 .positions = placed.positions,
                 .documents = placed.documents,
                 .padding = model->batch.padding});
  AbortToken abort;
  device::Lane lane("test", run.threads, 0, abort);
  device::StepScalars scalars{.loss_gradient = loss_gradient};
  Buffer constants(model->constants_bytes / sizeof(float) + 1, DType::fp32);
  model->fill_constants(constants.view().data);

  std::vector<Buffer> parameters, gradients, saved, x;
  for (const auto& unit : model->units) {
    fill(*unit, parameters.emplace_back(unit->size(), run.dtype));
    gradients.emplace_back(unit->size(), run.dtype);
    saved.emplace_back(unit->bytes().saved / sizeof(float), DType::fp32);
    x.emplace_back(run.tokens() * model->hidden, run.dtype);  // of the unit; after the last unit's: dx
  }
  Buffer dx(run.tokens() * model->hidden, run.dtype);
  const auto& shared = model->loss_unit().shared();
  Buffer shared_gradients(shared ? shared->elements.size() : 0, run.dtype);

  const auto context = [&](std::size_t unit, const Buffer& workspace) {
    Context c{};
    c.batch = {columns.tokens.data(),
               columns.labels.data(),
               placed.positions.data(),
               columns.documents.data(),
               loss_rows.empty() ? nullptr : loss_rows.data(),
               types.data()};
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
      // The part of the rounded-up range that the unit has.
      const View holder = parameters[shared->unit].view();
      const std::size_t begin = shared->elements.begin;
      c.shared = {holder.sub(begin, std::min(shared->elements.size(), holder.size - begin))};
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
      out.gradients.emplace_back(p.name, gradients[u].doubles(p.offset, p.size()));
  if (shared) out.gradients.emplace_back("shared", shared_gradients.doubles(0, model->vocabulary * model->hidden));
  return out;
}

}  // namespace strata::models::testing
