#include "runtime/data/open_data.h"

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/data/sequences/next_token.h"
#include "runtime/data/sequences/packed_sequences.h"
#include "runtime/data/sequences/stream_sequences.h"

namespace strata::runtime {

namespace fs = std::filesystem;

std::vector<fs::path> data_files(const Recipe::Data& data) {
  std::vector<fs::path> out;
  const auto add = [&](const std::vector<std::string>& patterns, const char* key) {
    for (const std::string& pattern : patterns) {
      try {
        const auto paths = expand_patterns({&pattern, 1}, key);
        out.insert(out.end(), paths.begin(), paths.end());
      } catch (const Error&) {
        // Said by who opens it.
      }
    }
  };
  for (const DataSource& source : data.train) add(source.files, "data.train");
  add(data.validation, "data.validation");
  return out;
}

namespace {

bool has_mask(const fs::path& path) {
  const auto sidecar = read_sidecar(path);
  return sidecar && sidecar->mask;
}

// Of automatic packing what comes of it: a mask is of documents.
Packing packing_of(const Recipe::Data& data) {
  if (data.packing != Packing::automatic) return data.packing;
  const auto files = data_files(data);
  return std::any_of(files.begin(), files.end(), has_mask) ? Packing::documents : Packing::stream;
}

void refuse_masks(std::span<const TokenFile> files) {
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->types)
      fail(Exit::usage,
           "{} holds pairs of texts, whose token types data.packing = \"stream\" does not see: take \"documents\"",
           file.path().string());
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->mask)
      fail(Exit::usage,
           "{} has a mask, and data.packing = \"stream\" takes every token as a label: take \"documents\", or tokenize "
           "it without a mask",
           file.path().string());
}

std::vector<TokenFile> open_files(std::span<const std::string> patterns, const char* key, const Opening& opening) {
  auto files = open_token_files(patterns, key, opening.vocabulary, opening.seen);
  opening.check(files);
  return files;
}

std::shared_ptr<const Labelling> make(const MakeLabelling& labelling, std::span<const TokenFile> files,
                                      std::uint64_t stream) {
  return labelling ? labelling(files, stream) : std::make_shared<NextToken>();
}

std::unique_ptr<PackedSequences> packed(std::vector<TokenFile> files, const Recipe::Data& data, const Opening& opening,
                                        std::shared_ptr<const Labelling> labelling) {
  return std::make_unique<PackedSequences>(std::move(files), static_cast<std::uint32_t>(data.seq_len),
                                           data.long_documents, opening.memory, std::move(labelling));
}

}  // namespace

bool names_documents(const Recipe::Data& data) {
  const auto files = data_files(data);
  return !files.empty() && std::ranges::all_of(files, [](const fs::path& path) {
    const auto sidecar = read_sidecar(path);
    return sidecar && sidecar->documents;
  });
}

void settle_data(Recipe& recipe, bool evaluates, const MakeLabelling& labelling) {
  Recipe::Data& data = recipe.data;
  data.packing = packing_of(data);
  data.index_bytes = data.validation_index_bytes = 0;
  data.mean_squares = 0;
  if (data.packing != Packing::documents) return;
  const auto seq_len = static_cast<std::uint32_t>(data.seq_len);
  // Adds what the files came to; most: labels of a sequence.
  const auto look = [&](const std::vector<std::string>& patterns, const char* key, std::uint64_t stream,
                        std::uint64_t& most) {
    std::vector<TokenFile> files;
    for (const fs::path& path : expand_patterns(patterns, key)) files.emplace_back(path, std::nullopt);
    auto of_files = make(labelling, files, stream);
    if (data.loss_rows == 0) return look_at_documents(files, seq_len, data.long_documents, *of_files);
    const PackedSequences sequences(std::move(files), seq_len, data.long_documents, std::pmr::get_default_resource(),
                                    std::move(of_files));
    most = std::max(most, sequences.most_labels());
    return sequences.figures();
  };
  std::uint64_t most = 0, most_of_validation = 0;
  PackingFigures sum;
  if (!data.validation.empty() && (evaluates || recipe.evaluation.asked())) {
    sum = look(data.validation, "data.validation", kValidationStream, most_of_validation);
    data.validation_index_bytes = sum.index_bytes(seq_len);
  }
  if (!evaluates) sum = {};
  for (std::size_t i = 0; !evaluates && i < data.train.size(); ++i) {
    const PackingFigures figures = look(data.train[i].files, "data.train", i, most);
    data.index_bytes += figures.index_bytes(seq_len);
    sum += figures;
  }
  data.mean_squares = sum.mean_squares(seq_len);
  if (most > 0) data.loss_rows = most;
  if (most_of_validation > 0) data.validation_loss_rows = most_of_validation;
}

Batches open_training_data(const Recipe& recipe, const Opening& opening) {
  const Recipe::Data& data = recipe.data;
  const Packing packing = packing_of(data);
  std::vector<Source> sources;
  for (const DataSource& source : data.train) {
    auto files = open_files(source.files, "data.train", opening);
    auto labelling = make(opening.labelling, files, sources.size());
    if (packing == Packing::documents) {
      sources.push_back({packed(std::move(files), data, opening, std::move(labelling)), source.weight});
    } else {
      refuse_masks(files);
      sources.push_back({whole_sequences(std::move(files), data.seq_len, std::move(labelling)), source.weight});
    }
  }
  return {std::move(sources), data.seq_len, recipe.training.micro_batch_size, data.order, recipe.training.seed};
}

std::unique_ptr<Sequences> open_validation_data(const Recipe& recipe, const Opening& opening) {
  const Recipe::Data& data = recipe.data;
  auto files = open_files(data.validation, "data.validation", opening);
  auto labelling = make(opening.labelling, files, kValidationStream);
  if (packing_of(data) == Packing::documents) return packed(std::move(files), data, opening, std::move(labelling));
  refuse_masks(files);
  return every_label(std::move(files), data.seq_len, std::move(labelling));
}

}  // namespace strata::runtime
