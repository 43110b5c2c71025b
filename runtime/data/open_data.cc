#include "runtime/data/open_data.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "runtime/data/files/documents.h"
#include "runtime/data/files/labels.h"
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
        // The code that opens it for use reports the error.
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

// Resolves automatic packing: a mask implies documents. `known`: the result of an earlier call; otherwise automatic.
Packing packing_of(const Recipe::Data& data, Packing known) {
  if (data.packing != Packing::automatic) return data.packing;
  if (known != Packing::automatic) return known;
  const auto files = data_files(data);
  return std::any_of(files.begin(), files.end(), has_mask) ? Packing::documents : Packing::stream;
}

void refuse_masks(std::span<const TokenFile> files) {
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->types)
      fail(Exit::usage,
           "{} contains pairs of texts, but data.packing = \"stream\" does not keep their token types: use "
           "\"documents\"",
           file.path().string());
  for (const TokenFile& file : files)
    if (file.sidecar() && file.sidecar()->mask)
      fail(Exit::usage,
           "{} has a mask, but data.packing = \"stream\" takes every token as a label: use \"documents\", or tokenize "
           "it without a mask",
           file.path().string());
}

std::vector<TokenFile> open_files(std::span<const std::string> patterns, const char* key, const OpenContext& context) {
  auto files = open_token_files(patterns, key, context.vocabulary, context.fingerprints);
  context.check(files);
  return files;
}

// The options for dividing a source into sequences.
struct SequenceOptions {
  std::uint64_t stream;
  std::uint64_t most = kAllSequences;
  bool every_label = false;  // for a stream
  PackedSequences::Pack pack = PackedSequences::Pack::in_its_memory;
};

SequenceOptions training_options(std::size_t source) {
  return {source};
}
SequenceOptions validation_options(const Recipe& recipe) {
  return {kValidationStream, max_validation_sequences(recipe), true};
}

std::unique_ptr<Sequences> sequences_of(std::vector<TokenFile> files, const Recipe::Data& data, Packing packing,
                                        const MakeLabelling& make, const SequenceOptions& options) {
  auto labelling = make ? make(files, options.stream) : nullptr;
  if (packing == Packing::documents)
    return std::make_unique<PackedSequences>(std::move(files), static_cast<std::uint32_t>(data.seq_len),
                                             data.long_documents, std::move(labelling), options.pack, options.most);
  refuse_masks(files);
  return options.every_label ? every_label(std::move(files), data.seq_len, std::move(labelling), options.most)
                             : full_sequences(std::move(files), data.seq_len, std::move(labelling));
}

// Moves the sequences into the memory that the run reserved for them. If they were opened before, their files are
// checked like new ones.
std::unique_ptr<Sequences> take_up(std::unique_ptr<Sequences> opened, std::span<const std::string> patterns,
                                   const char* key, const Recipe::Data& data, const OpenContext& context,
                                   const SequenceOptions& options) {
  if (opened) {
    opened->limit_to(context.vocabulary);
    check_token_files(opened->files(), key, context.fingerprints);
    context.check(opened->files());
  } else {
    opened = sequences_of(open_files(patterns, key, context), data, packing_of(data, context.packing),
                          context.labelling, options);
  }
  opened->keep_in(context.memory);
  return opened;
}

}  // namespace

void look_at_data(std::span<const std::string> patterns, const char* key) {
  for (const fs::path& path : expand_patterns(patterns, key)) (void)TokenFile(path, std::nullopt);
}

bool names_documents(const Recipe::Data& data) {
  const auto files = data_files(data);
  return !files.empty() && std::ranges::all_of(files, [](const fs::path& path) {
    const auto sidecar = read_sidecar(path);
    return sidecar && sidecar->documents;
  });
}

std::string hash_of_contents(std::span<const comm::FileFingerprint> files) {
  if (files.empty()) return {};
  std::string fingerprints;
  for (const comm::FileFingerprint& file : files) fingerprints += file.fingerprint + '\n';
  return fmt::format("{:016x}", XXH3_64bits(fingerprints.data(), fingerprints.size()));
}

std::string validation_hash(const Recipe::Data& data) {
  constexpr const char* kKey = "data.validation";
  std::vector<comm::FileFingerprint> files;
  for (const fs::path& path : expand_patterns(data.validation, kKey))
    files.push_back(TokenFile(path, std::nullopt).fingerprint(kKey));
  return hash_of_contents(files);
}

std::uint64_t max_validation_sequences(const Recipe& recipe) {
  const auto& most = recipe.evaluation.max_sequences;
  return most ? static_cast<std::uint64_t>(*most) : kAllSequences;
}

OpenedData resolve_data(const Recipe& recipe, DataFacts& facts, bool evaluates, const MakeLabelling& labelling) {
  const Recipe::Data& data = recipe.data;
  facts.packing = packing_of(data, facts.packing);
  facts.index_bytes = facts.validation_index_bytes = 0;
  facts.mean_squares = 0;
  OpenedData opened;
  const bool packs = facts.packing == Packing::documents;
  if (!packs && !labelling) return opened;
  // The size of the head depends on the packed sequences, so pack now.
  const auto pack = facts.loss_rows > 0 ? PackedSequences::Pack::at_once : PackedSequences::Pack::in_its_memory;
  const auto open = [&](const std::vector<std::string>& patterns, const char* key, SequenceOptions options) {
    options.pack = pack;
    std::vector<TokenFile> files;
    for (const fs::path& path : expand_patterns(patterns, key)) files.emplace_back(path, std::nullopt);
    return sequences_of(std::move(files), data, facts.packing, labelling, options);
  };
  std::uint64_t most = 0, most_of_validation = 0;
  PackingFigures sum;
  if (!data.validation.empty() && (evaluates || recipe.evaluation.asked())) {
    opened.validation = open(data.validation, "data.validation", validation_options(recipe));
    facts.validation_index_bytes = opened.validation->index_bytes();
    if (packs && evaluates) sum = *opened.validation->packing();
    most_of_validation = opened.validation->max_labels();
  }
  for (std::size_t i = 0; !evaluates && i < data.train.size(); ++i) {
    const Sequences& source = *opened.train.emplace_back(open(data.train[i].files, "data.train", training_options(i)));
    facts.index_bytes += source.index_bytes();
    if (packs) sum += *source.packing();
    most = std::max(most, source.max_labels());
  }
  facts.mean_squares = sum.mean_squares(static_cast<std::uint32_t>(data.seq_len));
  if (packs && facts.loss_rows > 0 && most > 0) facts.loss_rows = most;
  if (packs && facts.loss_rows > 0 && most_of_validation > 0) facts.validation_loss_rows = most_of_validation;
  return opened;
}

std::optional<std::uint64_t> training_sequences(const Recipe& recipe, Packing packing, OpenedData opened,
                                                std::int64_t vocabulary) {
  std::uint64_t all = 0;
  try {
    for (std::size_t i = 0; i < recipe.data.train.size(); ++i) {
      if (i < opened.train.size() && opened.train[i]) {
        opened.train[i]->keep_in(std::pmr::get_default_resource());
        all += opened.train[i]->size();
        continue;
      }
      if (packing != Packing::stream) return std::nullopt;
      std::vector<TokenFile> files;
      for (const fs::path& path : expand_patterns(recipe.data.train[i].files, "data.train"))
        files.emplace_back(path, vocabulary);
      all += full_sequences(std::move(files), recipe.data.seq_len)->size();
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return all > 0 ? std::optional(all) : std::nullopt;
}

Batches open_training_data(const Recipe& recipe, const OpenContext& context,
                           std::vector<std::unique_ptr<Sequences>> opened) {
  const Recipe::Data& data = recipe.data;
  opened.resize(data.train.size());
  std::vector<Source> sources;
  for (std::size_t i = 0; i < data.train.size(); ++i)
    sources.push_back(
        {take_up(std::move(opened[i]), data.train[i].files, "data.train", data, context, training_options(i)),
         data.train[i].weight});
  return {std::move(sources), data.seq_len, recipe.training.micro_batch_size, data.order, recipe.training.seed};
}

std::unique_ptr<Sequences> open_validation_data(const Recipe& recipe, const OpenContext& context,
                                                std::unique_ptr<Sequences> opened) {
  return take_up(std::move(opened), recipe.data.validation, "data.validation", recipe.data, context,
                 validation_options(recipe));
}

void check_validation_data(const Recipe& recipe, const OpenContext& context) {
  const auto files = open_files(recipe.data.validation, "data.validation", context);
  const bool packs = packing_of(recipe.data, context.packing) == Packing::documents;
  if (!packs) refuse_masks(files);
  for (const TokenFile& file : files) {
    if (packs) (void)Documents(file);
    check_label_file(file);
  }
}

}  // namespace strata::runtime
