#include "device/ops/products/product.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "device/cpu/backend.h"
#include "device/cpu/isa.h"
#include "device/cpu/kernels/tables.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/matmul.h"

namespace strata::device::cpu {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// The tiles along one dimension. All have the same length, except that the last may be shorter.
struct Tiles {
  std::int64_t size, part;
  std::int64_t parts() const { return (size + part - 1) / part; }
  std::int64_t length(std::int64_t i) const { return std::min(part, size - i * part); }
  bool last_differs() const { return size % part != 0 && size > part; }
  std::int64_t last() const { return length(parts() - 1); }
  // 0: like the first; 1: the shorter last one.
  int kind(std::int64_t i) const { return last_differs() && i + 1 == parts() ? 1 : 0; }
};

// Candidate tile sizes. The first that gives kTilesWanted tiles is used, otherwise the last. The library packs both
// operands for each tile. The large sizes hide that cost (97-99% of the whole product's speed), the small ones less
// (85-90%).
constexpr struct { std::int64_t rows, columns; } kTiles[] = {{512, 384}, {256, 384}, {256, 192}, {128, 192}};
constexpr std::int64_t kTilesWanted = 8;
// Boundaries are multiples of the blocks of the library's innermost kernels.
constexpr std::int64_t kRowGrain = 32, kColumnGrain = 64;
// Widened operands go through scratch in blocks of this depth, which are added in this order.
constexpr std::int64_t kDepth = 256;

// Cuts into roughly equal parts of at most `most`.
Tiles tiles_along(std::int64_t size, std::int64_t most, std::int64_t grain) {
  const std::int64_t parts = (size + most - 1) / most;
  const std::int64_t part = ((size + parts - 1) / parts + grain - 1) / grain * grain;
  return {size, std::min(size, part)};
}

struct Tiling {
  Tiles rows, columns;
};
Tiling tiling_of(std::int64_t m, std::int64_t n) {
  Tiling tiling{};
  for (const auto& most : kTiles) {
    tiling = {tiles_along(m, most.rows, kRowGrain), tiles_along(n, most.columns, kColumnGrain)};
    if (tiling.rows.parts() * tiling.columns.parts() >= kTilesWanted) break;
  }
  return tiling;
}

bool widens(const ProductShape& s) {
  const bool native = native_bf16();  // always called: it sets the library's instruction set
  return s.in == DType::fp16 || (s.in == DType::bf16 && !native);
}

}  // namespace

class TiledProduct final : public Product::Impl {
 public:
  explicit TiledProduct(const ProductShape& s);

  std::size_t workspace_bytes(int threads) override;
  void run(Lane& lane, const Operands& x) override;

  const bool widen;
  const Tiles rows, columns, depth;
  std::size_t worker_bytes = 0;  // workspace per worker

 private:
  void reserve(int workers);
  void run(Team& team, const Operands& x) const;
  // The steps of a widened product along its depth: the first overwrites (unless the product accumulates), the others
  // add.
  enum Step : std::size_t { first = 0, middle = 1, last = 2 };
  struct Scratch {
    std::byte *library, *a, *b, *bias, *c;
  };
  struct Tile {
    std::int64_t row, column;
  };

  static std::size_t slot(int row_kind, int column_kind, Step step) { return (row_kind * 2 + column_kind) * 3 + step; }
  void add_matmul(int row_kind, int column_kind, Step step);
  Scratch scratch(View workspace, int worker) const;
  void run_native(const Operands& x, const Tile& t, int worker, const Scratch& s) const;
  void run_widened(const Operands& x, const Tile& t, int worker, const Scratch& s) const;
  void finish(const Operands& x, const Tile& t) const;
  void run_matmul(std::size_t slot, int worker, const void* a, const void* b, const void* bias, void* c,
                  void* library) const {
    matmuls_[slot]->run(*workers_[worker]->handles[slot], a, b, bias, c, library);
  }

  static constexpr std::size_t kSlots = 12;
  std::array<std::optional<Matmul>, kSlots> matmuls_;
  struct Worker {
    std::array<Matmul::WorkerPtr, kSlots> handles;
  };
  std::vector<std::unique_ptr<Worker>> workers_;  // never moves: one lane may be reading while another is prepared
  std::size_t library_bytes_ = 0;
};

TiledProduct::TiledProduct(const ProductShape& s)
    : Impl(s),
      widen(widens(s)),
      rows(tiling_of(s.m, s.n).rows),
      columns(tiling_of(s.m, s.n).columns),
      depth{s.k, widen ? std::min(s.k, kDepth) : s.k},
      workers_(std::max(256u, std::thread::hardware_concurrency())) {
  for (int r = 0; r <= int{rows.last_differs()}; ++r) {
    for (int c = 0; c <= int{columns.last_differs()}; ++c) {
      add_matmul(r, c, first);
      if (depth.parts() > 2) add_matmul(r, c, middle);
      if (depth.parts() > 1) add_matmul(r, c, last);
    }
  }
  for (const auto& matmul : matmuls_)
    if (matmul) library_bytes_ = std::max(library_bytes_, align(matmul->scratch_bytes()));
  worker_bytes = library_bytes_;
  if (widen) {
    const std::int64_t floats = rows.part * depth.part + columns.part * depth.part + columns.part +
                                rows.part * columns.part + 4 * static_cast<std::int64_t>(kAlignment);
    worker_bytes += align(static_cast<std::size_t>(floats) * sizeof(float));
  }
}

void TiledProduct::add_matmul(int row_kind, int column_kind, Step step) {
  MatmulShape tile{.m = row_kind ? rows.last() : rows.part,
                   .n = column_kind ? columns.last() : columns.part,
                   .k = step == last ? depth.last() : depth.part};
  std::int64_t lda = shape.lda, ldb = shape.ldb;
  tile.c_row = shape.ldc;
  tile.in = shape.in;
  tile.out = shape.out;
  if (widen) {  // blocks are dense, and oriented as their operand is stored
    lda = shape.transpose_a ? tile.m : tile.k;
    ldb = shape.transpose_b ? tile.k : tile.n;
    if (shape.out != DType::fp32) tile.c_row = tile.n;
    tile.in = tile.out = DType::fp32;
  }
  tile.a_row = shape.transpose_a ? 1 : lda;
  tile.a_column = shape.transpose_a ? lda : 1;
  tile.b_row = shape.transpose_b ? 1 : ldb;
  tile.b_column = shape.transpose_b ? ldb : 1;
  tile.bias = shape.bias && step == first;
  tile.accumulate = shape.accumulate || step != first;
  matmuls_[slot(row_kind, column_kind, step)].emplace(tile);
}

void TiledProduct::reserve(int workers) {
  if (static_cast<std::size_t>(workers) > workers_.size())
    fail(Exit::usage, "a lane has {} threads, more than the {} that products allow here: use fewer threads", workers,
         workers_.size());
  for (int w = 0; w < workers; ++w) {
    if (workers_[w]) continue;
    workers_[w] = std::make_unique<Worker>();
    for (std::size_t i = 0; i < kSlots; ++i)
      if (matmuls_[i]) workers_[w]->handles[i] = matmuls_[i]->make_worker();
  }
}

TiledProduct::Scratch TiledProduct::scratch(View workspace, int worker) const {
  const auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  std::byte* at = workspace.data + (align(address) - address) + worker_bytes * static_cast<std::size_t>(worker);
  auto take = [&](std::int64_t floats) {
    std::byte* const taken = at;
    at += align(static_cast<std::size_t>(floats) * sizeof(float));
    return taken;
  };
  Scratch s{};
  s.library = at;
  at += library_bytes_;
  if (widen) {
    s.a = take(rows.part * depth.part);
    s.b = take(columns.part * depth.part);
    s.bias = take(columns.part);
    s.c = take(rows.part * columns.part);
  }
  return s;
}

void TiledProduct::run(Team& team, const Operands& x) const {
  const std::int64_t down = rows.parts(), across = columns.parts();
  team.run(static_cast<std::size_t>(down * across), [&](std::size_t task, int worker) {
    const Tile tile{static_cast<std::int64_t>(task) % down, static_cast<std::int64_t>(task) / down};
    if (widen)
      run_widened(x, tile, worker, scratch(x.workspace, worker));
    else
      run_native(x, tile, worker, scratch(x.workspace, worker));
    finish(x, tile);
  });
}

// Applies the epilogue to a tile's elements.
void TiledProduct::finish(const Operands& x, const Tile& t) const {
  const bool forward = is_gelu(shape.epilogue);
  if (!forward && !is_gelu_gradient(shape.epilogue)) return;
  const ActivationKernels& kernels = activation_kernels();
  const bool erf = shape.epilogue == Epilogue::gelu_erf || shape.epilogue == Epilogue::gelu_erf_gradient;
  const auto kind = static_cast<std::size_t>(erf ? Activation::gelu_erf : Activation::gelu_tanh);
  const auto dtype = static_cast<std::size_t>(shape.out);
  const auto gelu = kernels.forward[kind][dtype];
  const auto gelu_gradient = kernels.backward[kind][dtype];
  const auto bytes = static_cast<std::int64_t>(size_of(shape.out));
  const auto n = static_cast<std::size_t>(columns.length(t.column));
  for (std::int64_t i = t.row * rows.part; i < t.row * rows.part + rows.length(t.row); ++i) {
    const std::int64_t at = bytes * (i * shape.ldc + t.column * columns.part);
    if (forward)
      gelu(x.c.data + at, x.epilogue_out.data + at, n);
    else
      gelu_gradient(x.c.data + at, x.epilogue_in.data + at, x.c.data + at, n);
  }
}

void TiledProduct::run_native(const Operands& x, const Tile& t, int worker, const Scratch& s) const {
  const std::int64_t i = t.row * rows.part, j = t.column * columns.part;
  const auto bytes = static_cast<std::int64_t>(size_of(shape.in));
  run_matmul(slot(rows.kind(t.row), columns.kind(t.column), first), worker,
             x.a.data + bytes * (shape.transpose_a ? i : i * shape.lda),
             x.b.data + bytes * (shape.transpose_b ? j * shape.ldb : j), shape.bias ? x.bias.data + bytes * j : nullptr,
             x.c.data + static_cast<std::int64_t>(size_of(shape.out)) * (i * shape.ldc + j), s.library);
}

void TiledProduct::run_widened(const Operands& x, const Tile& t, int worker, const Scratch& s) const {
  const auto widen_block = [&, widen = product_kernels().widen[static_cast<std::size_t>(shape.in)]](
                               const std::byte* from, std::int64_t stride, std::int64_t r, std::int64_t count,
                               std::byte* to) {
    widen(from, static_cast<std::size_t>(stride), static_cast<std::size_t>(r), static_cast<std::size_t>(count),
          reinterpret_cast<float*>(to));
  };
  const std::int64_t i = t.row * rows.part, j = t.column * columns.part;
  const std::int64_t m = rows.length(t.row), n = columns.length(t.column);
  std::byte* const c = x.c.data + static_cast<std::int64_t>(size_of(shape.out)) * (i * shape.ldc + j);
  std::byte* const sum = shape.out == DType::fp32 ? c : s.c;
  if (shape.bias) widen_block(x.bias.data + 2 * j, n, 1, n, s.bias);
  if (shape.accumulate && shape.out != DType::fp32) widen_block(c, shape.ldc, m, n, s.c);
  for (std::int64_t part = 0; part < depth.parts(); ++part) {
    const std::int64_t p = part * depth.part, k = depth.length(part);
    if (shape.transpose_a)
      widen_block(x.a.data + 2 * (p * shape.lda + i), shape.lda, k, m, s.a);
    else
      widen_block(x.a.data + 2 * (i * shape.lda + p), shape.lda, m, k, s.a);
    if (shape.transpose_b)
      widen_block(x.b.data + 2 * (j * shape.ldb + p), shape.ldb, n, k, s.b);
    else
      widen_block(x.b.data + 2 * (p * shape.ldb + j), shape.ldb, k, n, s.b);
    const Step step = part == 0 ? first : part + 1 == depth.parts() ? last : middle;
    run_matmul(slot(rows.kind(t.row), columns.kind(t.column), step), worker, s.a, s.b,
               shape.bias && step == first ? s.bias : nullptr, sum, s.library);
  }
  if (shape.out != DType::fp32)
    product_kernels().round[static_cast<std::size_t>(shape.out)](
        reinterpret_cast<const float*>(sum), static_cast<std::size_t>(m), static_cast<std::size_t>(n), c,
        static_cast<std::size_t>(shape.ldc));
}

std::size_t TiledProduct::workspace_bytes(int threads) {
  reserve(threads);  // reserved at set-up, so that the step allocates nothing
  return worker_bytes * static_cast<std::size_t>(threads) + kAlignment;
}

void TiledProduct::run(Lane& lane, const Operands& x) {
  reserve(lane.threads());
  submit(lane, [this, x](Team& team) { run(team, x); });
  if (epilogue_workspace() > 0) run_epilogue(lane, x);  // sums of an operand belong to no tile
}

std::unique_ptr<Product::Impl> make_product(Device, const ProductShape& shape) {
  return std::make_unique<TiledProduct>(shape);
}

}  // namespace strata::device::cpu
