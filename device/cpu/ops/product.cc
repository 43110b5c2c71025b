#include "device/ops/product.h"

#include <algorithm>
#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "device/cpu/isa.h"
#include "device/cpu/kernels/activation.h"
#include "device/cpu/kernels/product.h"
#include "device/cpu/lane_impl.h"
#include "device/cpu/matmul.h"

namespace strata::device {
namespace {

using cpu::Matmul;
using cpu::MatmulShape;

constexpr std::size_t kAlignment = 64;
constexpr std::size_t align(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// How one dimension is cut: all parts alike but the last.
struct Cut {
  std::int64_t size, part;
  std::int64_t parts() const { return (size + part - 1) / part; }
  std::int64_t length(std::int64_t i) const { return std::min(part, size - i * part); }
  bool last_differs() const { return size % part != 0 && size > part; }
  std::int64_t last() const { return length(parts() - 1); }
  // 0: like the first; 1: the shorter last one.
  int kind(std::int64_t i) const { return last_differs() && i + 1 == parts() ? 1 : 0; }
};

// Tiles at most this large, the first of them that gives kTilesWanted (else the last): the library packs both operands
// of a tile anew, which the first sizes hide (97-99% of the whole product's speed), the last less (85-90%).
constexpr struct { std::int64_t rows, columns; } kTiles[] = {{512, 384}, {256, 384}, {256, 192}, {128, 192}};
constexpr std::int64_t kTilesWanted = 8;
// Borders are multiples of what the library's innermost kernels take at a time.
constexpr std::int64_t kRowGrain = 32, kColumnGrain = 64;
// Widened operands go through scratch in blocks of this depth, added up in this order.
constexpr std::int64_t kDepth = 256;

// Into parts of at most `most`, about equal.
Cut cut(std::int64_t size, std::int64_t most, std::int64_t grain) {
  const std::int64_t parts = (size + most - 1) / most;
  const std::int64_t part = ((size + parts - 1) / parts + grain - 1) / grain * grain;
  return {size, std::min(size, part)};
}

struct Cuts {
  Cut rows, columns;
};
Cuts cut_into_tiles(std::int64_t m, std::int64_t n) {
  Cuts cuts{};
  for (const auto& most : kTiles) {
    cuts = {cut(m, most.rows, kRowGrain), cut(n, most.columns, kColumnGrain)};
    if (cuts.rows.parts() * cuts.columns.parts() >= kTilesWanted) break;
  }
  return cuts;
}

bool widens(const ProductShape& s) {
  const bool native = cpu::native_bf16();  // asked in any case: it sets the library's instruction set
  return s.in == DType::fp16 || (s.in == DType::bf16 && !native);
}

const ProductShape& checked(const ProductShape& s) {
  STRATA_CHECK(s.m >= 1 && s.n >= 1 && s.k >= 1);
  STRATA_CHECK_LE(s.transpose_a ? s.m : s.k, s.lda);
  STRATA_CHECK_LE(s.transpose_b ? s.k : s.n, s.ldb);
  STRATA_CHECK_LE(s.n, s.ldc);
  STRATA_CHECK(s.out == s.in || s.out == DType::fp32);
  STRATA_CHECK(!s.accumulate || s.out == DType::fp32);
  return s;
}

// What a matrix of `rows` rows, `row` elements apart, occupies.
std::size_t extent(std::int64_t rows, std::int64_t columns, std::int64_t row) {
  return static_cast<std::size_t>((rows - 1) * row + columns);
}

}  // namespace

class Product::Impl {
 public:
  explicit Impl(const ProductShape& s);

  void reserve(int workers);
  struct Operands {
    ConstView a, b, bias;
    View c, workspace, activated;  // activated: the epilogue's output, or empty
  };
  void run(cpu::Team& team, const Operands& x) const;

  const ProductShape shape;
  const bool widen;
  const Cut rows, columns, depth;
  std::size_t worker_bytes = 0;  // of workspace, per worker

 private:
  // Depth steps of a widened product: the first overwrites (unless the product accumulates), the others add.
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
  void activate(const Operands& x, const Tile& t) const;
  void run_matmul(std::size_t slot, int worker, const void* a, const void* b, const void* bias, void* c,
                  void* library) const {
    matmuls_[slot]->run(*workers_[worker]->handles[slot], a, b, bias, c, library);
  }

  static constexpr std::size_t kSlots = 12;
  std::array<std::optional<Matmul>, kSlots> matmuls_;
  struct Worker {
    std::array<Matmul::WorkerPtr, kSlots> handles;
  };
  std::vector<std::unique_ptr<Worker>> workers_;  // never moves: a lane may be reading while another is prepared
  std::size_t library_bytes_ = 0;
};

Product::Impl::Impl(const ProductShape& s)
    : shape(checked(s)),
      widen(widens(s)),
      rows(cut_into_tiles(s.m, s.n).rows),
      columns(cut_into_tiles(s.m, s.n).columns),
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

void Product::Impl::add_matmul(int row_kind, int column_kind, Step step) {
  MatmulShape tile{.m = row_kind ? rows.last() : rows.part,
                   .n = column_kind ? columns.last() : columns.part,
                   .k = step == last ? depth.last() : depth.part};
  std::int64_t lda = shape.lda, ldb = shape.ldb;
  tile.c_row = shape.ldc;
  tile.in = shape.in;
  tile.out = shape.out;
  if (widen) {  // blocks are dense, each in the orientation its operand is stored in
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

void Product::Impl::reserve(int workers) {
  if (static_cast<std::size_t>(workers) > workers_.size())
    fail(Exit::usage, "a lane of {} threads is more than the {} that products allow here: use fewer threads", workers,
         workers_.size());
  for (int w = 0; w < workers; ++w) {
    if (workers_[w]) continue;
    workers_[w] = std::make_unique<Worker>();
    for (std::size_t i = 0; i < kSlots; ++i)
      if (matmuls_[i]) workers_[w]->handles[i] = matmuls_[i]->make_worker();
  }
}

Product::Impl::Scratch Product::Impl::scratch(View workspace, int worker) const {
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

void Product::Impl::run(cpu::Team& team, const Operands& x) const {
  const std::int64_t down = rows.parts(), across = columns.parts();
  team.run(static_cast<std::size_t>(down * across), [&](std::size_t task, int worker) {
    const Tile tile{static_cast<std::int64_t>(task) % down, static_cast<std::int64_t>(task) / down};
    if (widen)
      run_widened(x, tile, worker, scratch(x.workspace, worker));
    else
      run_native(x, tile, worker, scratch(x.workspace, worker));
    if (x.activated) activate(x, tile);
  });
}

void Product::Impl::activate(const Operands& x, const Tile& t) const {
  const auto gelu = cpu::activation_kernels().gelu_forward[static_cast<std::size_t>(shape.out)];
  const auto bytes = static_cast<std::int64_t>(size_of(shape.out));
  const auto n = static_cast<std::size_t>(columns.length(t.column));
  for (std::int64_t i = t.row * rows.part; i < t.row * rows.part + rows.length(t.row); ++i) {
    const std::int64_t at = bytes * (i * shape.ldc + t.column * columns.part);
    gelu(x.c.data + at, x.activated.data + at, n);
  }
}

void Product::Impl::run_native(const Operands& x, const Tile& t, int worker, const Scratch& s) const {
  const std::int64_t i = t.row * rows.part, j = t.column * columns.part;
  const auto bytes = static_cast<std::int64_t>(size_of(shape.in));
  run_matmul(slot(rows.kind(t.row), columns.kind(t.column), first), worker,
             x.a.data + bytes * (shape.transpose_a ? i : i * shape.lda),
             x.b.data + bytes * (shape.transpose_b ? j * shape.ldb : j), shape.bias ? x.bias.data + bytes * j : nullptr,
             x.c.data + static_cast<std::int64_t>(size_of(shape.out)) * (i * shape.ldc + j), s.library);
}

void Product::Impl::run_widened(const Operands& x, const Tile& t, int worker, const Scratch& s) const {
  const auto widen_block = [&, widen = cpu::product_kernels().widen[static_cast<std::size_t>(shape.in)]](
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
    cpu::product_kernels().round[static_cast<std::size_t>(shape.out)](
        reinterpret_cast<const float*>(sum), static_cast<std::size_t>(m), static_cast<std::size_t>(n), c,
        static_cast<std::size_t>(shape.ldc));
}

Product::Product(const ProductShape& shape) : impl_(std::make_unique<Impl>(shape)) {}
Product::~Product() = default;
Product::Product(Product&&) noexcept = default;
Product& Product::operator=(Product&&) noexcept = default;

const ProductShape& Product::shape() const {
  return impl_->shape;
}

std::size_t Product::workspace_bytes(int threads) const {
  impl_->reserve(threads);  // asked at set-up: the step then allocates nothing
  return impl_->worker_bytes * static_cast<std::size_t>(threads) + kAlignment;
}

void Product::run(Lane& lane, ConstView a, ConstView b, ConstView bias, View c, View workspace, Epilogue epilogue,
                  View epilogue_out) const {
  const ProductShape& s = impl_->shape;
  STRATA_CHECK(a.dtype == s.in && b.dtype == s.in && c.dtype == s.out);
  STRATA_CHECK_LE(s.transpose_a ? extent(s.k, s.m, s.lda) : extent(s.m, s.k, s.lda), a.size);
  STRATA_CHECK_LE(s.transpose_b ? extent(s.n, s.k, s.ldb) : extent(s.k, s.n, s.ldb), b.size);
  STRATA_CHECK_LE(extent(s.m, s.n, s.ldc), c.size);
  STRATA_CHECK_EQ(static_cast<bool>(bias), s.bias);
  STRATA_CHECK(!s.bias || (bias.dtype == s.in && bias.size >= static_cast<std::size_t>(s.n)));
  STRATA_CHECK_LE(workspace_bytes(lane.threads()), workspace.bytes());
  STRATA_CHECK_EQ(static_cast<bool>(epilogue_out), epilogue == Epilogue::gelu_tanh);
  STRATA_CHECK(!epilogue_out || (epilogue_out.dtype == s.out && epilogue_out.size >= extent(s.m, s.n, s.ldc)));
  impl_->reserve(lane.threads());
  cpu::submit(lane, [impl = impl_.get(), x = Impl::Operands{a, b, bias, c, workspace, epilogue_out}](cpu::Team& team) {
    impl->run(team, x);
  });
}

}  // namespace strata::device
