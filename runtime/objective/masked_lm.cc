#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "device/ops/losses/losses.h"
#include "runtime/data/open_data.h"
#include "runtime/data/scramble.h"
#include "runtime/objective/rules.h"

namespace strata::runtime {
namespace {

std::uint32_t chosen_of(std::uint64_t tokens, double probability) {
  if (tokens == 0) return 0;
  return static_cast<std::uint32_t>(std::max<std::int64_t>(1, std::llround(probability * static_cast<double>(tokens))));
}

MaskedTokens::Vocabulary vocabulary_of(std::span<const TokenFile> files) {
  MaskedTokens::Vocabulary out{};
  for (const TokenFile& file : files) {
    const auto& sidecar = file.sidecar();
    const std::string name = file.path().string();
    if (!sidecar || !sidecar->special_tokens)
      fail(Exit::usage,
           "{} does not say which of its tokens is the mask, which masked_lm needs: tokenize it again with strata "
           "tokenize",
           name);
    if (!sidecar->mask_token)
      fail(Exit::usage,
           "{} holds tokens of the tokenizer {}, which has no mask token (mask_token of its tokenizer_config.json, "
           "[MASK] or <mask>), but masked_lm needs one: use the tokenizer that comes with the encoder",
           name, sidecar->tokenizer);
    if (&file != &files.front() && out.mask != *sidecar->mask_token)
      fail(Exit::usage,
           "{} and {} are from tokenizers whose mask tokens differ ({} and {}): tokenize both again with the same "
           "tokenizer",
           files.front().path().string(), name, out.mask, *sidecar->mask_token);
    out.mask = *sidecar->mask_token;
    const auto words = static_cast<std::uint32_t>(file.limit());
    out.words = &file == &files.front() ? words : std::min(out.words, words);
    for (const std::uint32_t token : *sidecar->special_tokens) {
      if (out.special.size() <= token) out.special.resize(token + std::size_t{1});
      out.special[token] = true;
    }
  }
  return out;
}

std::shared_ptr<Labelling> masked_tokens(const Workload& workload, std::span<const TokenFile> files,
                                         std::uint64_t stream) {
  const Recipe::Training& training = workload.recipe.training;
  return std::make_shared<MaskedTokens>(vocabulary_of(files), training.mlm_probability.value_or(kMaskedShare),
                                        training.seed, stream);
}

// Checks the first token of the first document in each file: with the tokenizer's template, it is a special token.
void look_for_templates(Workload& workload, const LabelColumn* of_validation) {
  look_for_labels(workload, of_validation);
  for (const auto& path : data_files(workload.recipe.data)) {
    const TokenFile file(path, std::nullopt);
    if (!file.sidecar() || !file.sidecar()->special_tokens || file.count() == 0) continue;
    std::uint32_t first = 0;
    file.read(0, {&first, 1});
    if (std::ranges::find(*file.sidecar()->special_tokens, first) != file.sidecar()->special_tokens->end()) continue;
    workload.data.notes.push_back(
        fmt::format("{} begins with a token of text: encoders expect texts between their tokenizer's special tokens "
                    "([CLS], [SEP]), which strata tokenize --add-special puts there",
                    path.string()));
  }
}

std::optional<std::uint32_t> rows_of(const Recipe& recipe, std::uint32_t rows) {
  return chosen_of(rows, recipe.training.mlm_probability.value_or(kMaskedShare));
}

}  // namespace

constinit const ObjectiveRules kMaskedLm = {masked_tokens, rows_of, true, false, token_predictions, look_for_templates};

MaskedTokens::MaskedTokens(Vocabulary vocabulary, double probability, std::uint64_t seed, std::uint64_t stream)
    : vocabulary_(std::move(vocabulary)), probability_(probability), key_(scramble(scramble(seed) ^ stream)) {
  for (std::uint32_t token = 0; token < vocabulary_.special.size(); ++token) {
    if (!vocabulary_.special[token]) continue;
    if (!special_.empty() && special_.back().last + 1 == token)
      special_.back().last = token;
    else
      special_.push_back({token, token});
  }
}

bool MaskedTokens::may_be_chosen(const Piece& piece, std::uint32_t row, std::uint32_t token) const {
  return (token >= vocabulary_.special.size() || !vocabulary_.special[token]) && piece.counts(piece.begin + row);
}

std::uint32_t MaskedTokens::most(const Piece& piece) const {
  const std::uint64_t tokens =
      piece.documents ? piece.documents->labels(piece.begin, piece.begin + piece.rows) : piece.rows;
  // A document of only special tokens is left out. For a stream's piece, only the length matters here.
  if (piece.documents && !has_words(piece)) return 0;
  return chosen_of(tokens, probability_);
}

// Reads only up to the first word.
bool MaskedTokens::has_words(const Piece& piece) const {
  if (!piece.documents->has_mask()) return piece.file.any_outside(piece.begin, piece.rows, special_);
  std::array<std::uint32_t, 16> tokens;
  for (std::uint32_t first = 0; first < piece.rows; first += tokens.size()) {
    const std::span some = std::span(tokens).first(std::min<std::size_t>(tokens.size(), piece.rows - first));
    piece.file.read(piece.begin + first, some);
    for (std::uint32_t i = 0; i < some.size(); ++i)
      if (may_be_chosen(piece, first + i, some[i])) return true;
  }
  return false;
}

std::uint32_t MaskedTokens::count(const Piece& piece) const {
  if (!piece.documents || !piece.documents->has_mask())
    return chosen_of(piece.file.count_outside(piece.begin, piece.rows, special_), probability_);
  std::array<std::uint32_t, 1024> tokens;
  std::uint32_t n = 0;
  for (std::uint32_t first = 0; first < piece.rows; first += tokens.size()) {
    const std::span some = std::span(tokens).first(std::min<std::size_t>(tokens.size(), piece.rows - first));
    piece.file.read(piece.begin + first, some);
    for (std::uint32_t i = 0; i < some.size(); ++i) n += may_be_chosen(piece, first + i, some[i]);
  }
  return chosen_of(n, probability_);
}

// Selects the tokens with the k smallest numbers; of equal numbers, the first. The k-th smallest is searched for in the
// column of labels.
void MaskedTokens::fill(const Piece& piece, std::uint64_t epoch, const Rows& own) const {
  const std::uint64_t key = scramble(key_ ^ epoch);
  const auto number = [&](std::uint32_t row) { return scramble(key ^ (piece.place + row)); };
  const std::span numbers(reinterpret_cast<std::uint32_t*>(own.labels.data()), own.labels.size());
  std::uint32_t n = 0;
  for (std::uint32_t row = 0; row < piece.rows; ++row)
    if (may_be_chosen(piece, row, own.tokens[row])) numbers[n++] = static_cast<std::uint32_t>(number(row) >> 32);
  const std::uint32_t k = chosen_of(n, probability_);
  std::uint32_t most = 0, as_large = 0;
  if (k > 0) {
    const auto of_them = numbers.first(n);
    std::ranges::nth_element(of_them, of_them.begin() + (k - 1));
    most = of_them[k - 1];
    as_large = k - static_cast<std::uint32_t>(std::ranges::count_if(of_them, [&](auto x) { return x < most; }));
  }
  for (std::uint32_t row = 0; row < piece.rows; ++row) {
    std::uint32_t& token = own.tokens[row];
    const std::uint64_t random = number(row);
    const auto mine = static_cast<std::uint32_t>(random >> 32);
    const bool small_enough = k > 0 && (mine < most || (mine == most && as_large > 0));
    const bool chosen = small_enough && may_be_chosen(piece, row, token);
    if (chosen && mine == most) --as_large;
    own.labels[row] = chosen ? static_cast<std::int32_t>(token) : device::kIgnoredLabel;
    if (!chosen) continue;
    const std::uint64_t more = scramble(random);
    const std::uint32_t draw = static_cast<std::uint32_t>((more >> 32) * 10 >> 32);
    if (draw < 8)
      token = vocabulary_.mask;
    else if (draw == 8)
      token = static_cast<std::uint32_t>((more & 0xffffffff) * vocabulary_.words >> 32);
  }
}

}  // namespace strata::runtime
