#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/lane.h"
#include "device/memory.h"
#include "device/step_scalars.h"
#include "models/layers/heads/table_tiles.h"
#include "models/model.h"

// One unit of a model with everything that it needs to run. Every call of a unit's mathematics that the tests make is
// in this file.
namespace strata::models::testing {

using device::DType;
using device::View;
using Doubles = std::vector<double>;
using Weights = std::map<std::string, Doubles, std::less<>>;

// An operand's memory. It starts as NaN, so that reading unwritten elements shows. Bytes after it are guarded.
class Buffer {
 public:
  Buffer(std::size_t size, DType dtype)
      : arena_(size * size_of(dtype) + kGuardBytes), view_{arena_.data(), size, dtype} {
    poison();
  }
  void poison() { std::memset(arena_.data(), 0xff, arena_.size()); }
  bool guard_is_whole() const {
    return std::all_of(arena_.data() + view_.bytes(), arena_.data() + arena_.size(), is_poison);
  }

  View view() const { return view_.size ? view_ : View{}; }
  std::size_t size() const { return view_.size; }
  double operator[](std::size_t i) const {
    return visit(view_.dtype, [&](auto zero) {
      std::memcpy(&zero, view_.data + i * sizeof(zero), sizeof(zero));
      return static_cast<double>(device::to_float(zero));
    });
  }
  void set(std::size_t i, double x) {
    visit(view_.dtype, [&](auto zero) {
      const auto stored = device::from_float<decltype(zero)>(static_cast<float>(x));
      std::memcpy(view_.data + i * sizeof(stored), &stored, sizeof(stored));
    });
  }
  bool is_untouched(std::size_t i) const {
    const std::size_t width = size_of(view_.dtype);
    return std::all_of(view_.data + i * width, view_.data + (i + 1) * width, is_poison);
  }
  Doubles doubles(std::size_t begin, std::size_t count) const {
    Doubles out(count);
    for (std::size_t i = 0; i < count; ++i) out[i] = (*this)[begin + i];
    return out;
  }
  Doubles doubles() const { return doubles(0, size()); }
  std::vector<std::byte> bits() const { return {view_.data, view_.data + view_.bytes()}; }

 private:
  static constexpr std::size_t kGuardBytes = 256;
  static bool is_poison(std::byte b) { return b == std::byte{0xff}; }

  device::Arena arena_;
  View view_;
};

// Runs a unit's calls and waits for them. Tests change the operands between calls. Outputs, saved activations and
// workspace are as large as the unit requests, and NaN before every call.
class UnitRunner {
 public:
  // `model` gives constants to units that need them; a table that the unit shares has `shared_vocabulary` rows.
  UnitRunner(const Unit& unit, const RunShape& run, std::size_t hidden, const Model* model = nullptr,
             std::size_t shared_vocabulary = 0)
      : parameters(unit.size(), run.dtype),
        frozen(unit.size(PoolKind::frozen), run.dtype),
        gradients(unit.size(), run.dtype),
        shared(unit.shared() ? unit.shared()->elements.size() : 0, run.dtype),
        shared_gradients(shared.size(), run.dtype),
        x(run.tokens() * hidden, run.dtype),
        y(run.tokens() * hidden, run.dtype),
        dy(run.tokens() * hidden, run.dtype),
        dx(run.tokens() * hidden, run.dtype),
        saved(unit.bytes().saved / sizeof(float), DType::fp32),
        tokens(run.tokens()),
        positions(run.tokens()),
        types(run.tokens()),
        labels(run.tokens()),
        documents(run.tokens(), {0, static_cast<std::uint32_t>(run.seq)}),
        unit_(unit),
        vocabulary_(shared_vocabulary),
        forward_workspace_(unit.bytes().forward_workspace / sizeof(float), DType::fp32),
        backward_workspace_(unit.bytes().backward_workspace / sizeof(float), DType::fp32),
        loss_workspace_(head() ? head()->loss_workspace() / sizeof(float) : 0, DType::fp32),
        tiled_loss_workspace_(head() ? head()->tiled_loss_workspace() / sizeof(float) : 0, DType::fp32),
        constants_(model ? model->constants_bytes / sizeof(float) : 0, DType::fp32),
        lane_("test", run.threads, 0, abort_) {
    if (model) model->fill_constants(constants_.view().data);
    randomize(1);
    // Differs from the row's place in its sequence, because an operation must read the position.
    for (std::uint32_t& p : positions) p = static_cast<std::uint32_t>(random_() % run.seq);
  }

  // Matrices that keep the variance of what they multiply; gains around 1, biases around 0, operands in (-1, 1).
  void randomize(unsigned seed) {
    random_.seed(seed);
    for (const Parameter& p : unit_.parameters())
      for (std::size_t i = 0; i < p.size(); ++i)
        (p.trained() ? parameters : frozen)
            .set(place_in_pool(p.offset) + i, p.shape.size() == 1
                                                  ? static_cast<double>(p.init.constant) + uniform(0.3)
                                                  : uniform(std::sqrt(3.0 / static_cast<double>(p.shape.back()))));
    for (Buffer* buffer : {&shared, &x, &dy})
      for (std::size_t i = 0; i < buffer->size(); ++i) buffer->set(i, uniform(1));
  }
  double uniform(double scale) { return std::uniform_real_distribution<double>(-scale, scale)(random_); }
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

  void forward() {
    y.poison();
    run_forward(unit_.parts().size(), y.view());
  }
  // Runs only the parts of the forward that write `saved`, without y.
  void recompute() { run_forward(unit_.saving_parts(), {}); }
  // Uses `saved` as forward() or recompute() left it. in_place: dx takes dy's memory, from which it is then copied.
  void backward(bool in_place = false) {
    for (Buffer* buffer : {&gradients, &backward_workspace_, &dx}) buffer->poison();
    if (in_place) std::memcpy(dx.view().data, dy.view().data, dy.view().bytes());
    for (std::size_t part = unit_.parts().size(); part-- > unit_.first_backward_part();) {
      const Tile own(*this, parameters, unit_.parts()[part]), gradient(*this, gradients, unit_.parts()[part]);
      unit_.backward(lane_, context(backward_workspace_, own.parameters(), {}), part,
                     unit_.input_in_backward() ? x.view() : View{}, saved.view(), in_place ? dx.view() : dy.view(),
                     dx.view(), gradient.gradients());
      lane_.synchronize();
      gradient.copy_back(gradients);
    }
    expect_within_bounds();
  }
  // The summed loss of the micro-batch; with `learn` also dx and the gradients.
  double loss(bool learn) {
    for (Buffer* buffer : {&gradients, &shared_gradients, &loss_workspace_, &dx}) buffer->poison();
    device::ExactSum sum;
    sum.add(kLossBefore);
    Context c = context(loss_workspace_, {parameters.view()}, {shared.view()});
    if (learn) c.shared_gradients = {shared_gradients.view()};
    head()->loss(lane_, c, x.view(), &sum, learn ? dx.view() : View{}, learn ? gradients.view() : View{});
    lane_.synchronize();
    expect_within_bounds();
    return sum.round() - kLossBefore;
  }
  // The fp32 logits of the last row of x, in a run that generates.
  void logits(const KeyValueCache& keys_and_values, View to) {
    loss_workspace_.poison();
    Context c = context(loss_workspace_, {parameters.view()}, {shared.view()});
    c.cache = keys_and_values;
    head()->logits(lane_, c, x.view(), to);
    lane_.synchronize();
    expect_within_bounds();
  }
  // The central difference of the loss over element `i` of x or of the parameters.
  double loss_slope(Buffer& buffer, std::size_t i) {
    constexpr double kStep = 0x1p-6;
    const double at = buffer[i];
    buffer.set(i, at + kStep);
    const double above = loss(false);
    buffer.set(i, at - kStep);
    const double below = loss(false);
    buffer.set(i, at);
    return (above - below) / (2 * kStep);
  }
  // The same, step by step, with one tile of the table available.
  double tiled_loss() {
    for (Buffer* buffer : {&gradients, &shared_gradients, &tiled_loss_workspace_, &dx}) buffer->poison();
    device::ExactSum sum;
    sum.add(kLossBefore);
    const bool shares = shared.size() > 0;
    const auto norm_step = [&](LossStep step, device::ExactSum* loss, View to) {
      const Tile own(*this, parameters, unit_.parts()[0], true), gradient(*this, gradients, unit_.parts()[0], true);
      head()->loss_step(lane_, context(tiled_loss_workspace_, own.parameters(), {}), step, 0, x.view(), loss, to,
                        gradient.gradients());
      lane_.synchronize();
      if (to) gradient.copy_back(gradients);
    };
    const auto table_step = [&](LossStep step, std::size_t index) {
      const Part part = shares ? shared_part(index) : unit_.parts()[1 + index];
      const Tile table(*this, shares ? shared : parameters, part, true);
      const Tile gradient(*this, shares ? shared_gradients : gradients, part, true);
      head()->loss_step(lane_,
                        context(tiled_loss_workspace_, shares ? ParameterRange{} : table.parameters(),
                                shares ? table.parameters() : ParameterRange{}),
                        step, index, {}, nullptr, {}, gradient.gradients());
      lane_.synchronize();
      if (step == LossStep::gradients) gradient.copy_back(shares ? shared_gradients : gradients);
    };
    norm_step(LossStep::norm, nullptr, {});
    for (const LossStep step : {LossStep::statistics, LossStep::gradients})
      for (std::size_t index = 0; index < tiles().count(); ++index) table_step(step, index);
    norm_step(LossStep::finish, &sum, dx.view());
    expect_within_bounds();
    return sum.round() - kLossBefore;
  }

  // The parameter whose name has this ending.
  const Parameter& parameter(const std::string& ending) const {
    for (const Parameter& p : unit_.parameters())
      if (p.name.ends_with(ending)) return p;
    throw std::runtime_error("no parameter " + ending);
  }
  Doubles tensor(const Buffer& flat, const std::string& ending) const {
    return flat.doubles(parameter(ending).offset, parameter(ending).size());
  }
  // Every parameter, with its name without `prefix`.
  Weights weights(const std::string& prefix) const {
    Weights out;
    for (const Parameter& p : unit_.parameters())
      out[p.name.substr(prefix.size())] = parameters.doubles(p.offset, p.size());
    return out;
  }

  Buffer parameters, frozen, gradients, shared, shared_gradients, x, y, dy, dx, saved;
  std::vector<std::uint32_t> tokens, positions, types, loss_rows;
  std::vector<std::int32_t> labels;
  std::vector<device::RowRange> documents;
  KeyValueCache cache;  // of forward(), in a run that generates
  // Each call sees only the parameters and gradients of its part, as for a unit larger than memory.
  bool by_parts = false;
  std::uint64_t micro_batch = 3;
  device::StepScalars scalars{.seed = 0x123456789abcdefull, .first_micro_batch = 40, .loss_gradient = 0.5f};

 private:
  static constexpr double kLossBefore = 8;  // of other micro-batches: losses are added to it

  // The part of a flat buffer that a call gets: the whole buffer, or separate memory for the part.
  class Tile {
   public:
    Tile(const UnitRunner& runner, const Buffer& flat, Part part, bool alone = false)
        : part_(part), own_(alone || runner.by_parts ? part.end - part.begin : 0, flat.view().dtype), flat_(flat) {}
    ParameterRange parameters() const {
      if (own_.size() == 0) return {flat_.view()};
      std::memcpy(own_.view().data, at(flat_).data, at(flat_).bytes());
      return {own_.view(), part_.begin};
    }
    GradientRange gradients() const {
      return own_.size() > 0 ? GradientRange{own_.view(), part_.begin} : GradientRange{flat_.view()};
    }
    void copy_back(Buffer& flat) const {
      EXPECT_TRUE(own_.guard_is_whole()) << "written past the end of a part";
      if (own_.size() > 0) std::memcpy(at(flat).data, own_.view().data, at(flat).bytes());
    }

   private:
    View at(const Buffer& flat) const {
      const View all = flat.view();
      return {all.data + part_.begin * size_of(all.dtype), part_.end - part_.begin, all.dtype};
    }

    Part part_;
    Buffer own_;
    const Buffer& flat_;
  };

  const LossUnit* head() const { return unit_.as_loss(); }
  std::size_t hidden() const { return x.size() / tokens.size(); }
  // The table with which the head multiplies, and the parts of it that another unit holds.
  TableTiles tiles() const {
    return {vocabulary_ > 0 ? vocabulary_ : static_cast<std::size_t>(unit_.parameters().back().shape[0]),
            device::Kind::cpu};
  }
  Part shared_part(std::size_t index) const {
    return {tiles().first(index) * hidden(),
            index + 1 < tiles().count() ? tiles().first(index + 1) * hidden() : shared.size()};
  }
  Context context(const Buffer& workspace, const ParameterRange& own, const ParameterRange& table) const {
    return {{tokens.data(), labels.data(), positions.data(), documents.data(),
             loss_rows.empty() ? nullptr : loss_rows.data(), types.data()},
            micro_batch,
            &scalars,
            constants_.view().data,
            {.values = own.values, .begin = own.begin, .frozen = frozen.view()},
            table,
            workspace.view(),
            cache};
  }
  void run_forward(std::size_t parts, View to) {
    for (Buffer* buffer : {&saved, &forward_workspace_}) buffer->poison();
    for (std::size_t part = 0; part < parts; ++part) {
      const Tile own(*this, parameters, unit_.parts()[part]);
      unit_.forward(lane_, context(forward_workspace_, own.parameters(), {}), part, x.view(), to, saved.view());
      lane_.synchronize();
    }
    expect_within_bounds();
  }
  // Checks that nothing was written out of bounds or into the gaps between parameters.
  void expect_within_bounds() {
    for (const Buffer* buffer :
         {&parameters, &frozen, &gradients, &shared, &shared_gradients, &x, &y, &dy, &dx, &saved, &forward_workspace_,
          &backward_workspace_, &loss_workspace_, &tiled_loss_workspace_, &constants_})
      ASSERT_TRUE(buffer->guard_is_whole()) << unit_.name() << ": written past the end of a buffer";
    std::map<std::size_t, std::pair<std::size_t, std::string>> pieces;  // per offset: their sizes and names
    for (const Parameter& p : unit_.parameters())
      for (std::size_t piece = 0; p.trained() && piece < p.pieces(); ++piece)
        pieces[p.offset_of(piece)] = {p.piece_size(piece), p.name};
    std::size_t gap = 0;
    for (const auto& [offset, piece] : pieces) {
      for (; gap < offset; ++gap) ASSERT_TRUE(gradients.is_untouched(gap)) << "a gap before " << piece.second;
      gap = offset + piece.first;
    }
    for (; gap < gradients.size(); ++gap) ASSERT_TRUE(gradients.is_untouched(gap)) << "the gap at the end";
  }

  const Unit& unit_;
  std::size_t vocabulary_;
  Buffer forward_workspace_, backward_workspace_, loss_workspace_, tiled_loss_workspace_, constants_;
  std::mt19937_64 random_;
  AbortToken abort_;
  device::Lane lane_;
};

}  // namespace strata::models::testing
