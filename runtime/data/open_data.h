#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <memory_resource>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/same_files.h"
#include "runtime/data/batches.h"
#include "runtime/data/data_facts.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The token files of data.train and data.validation that exist.
std::vector<std::filesystem::path> data_files(const Recipe::Data& data);
// Opens the files of `patterns` (of data.train or data.validation: `key`) far enough to read their headers and
// sidecars. Throws Error for a file that is missing or invalid.
void look_at_data(std::span<const std::string> patterns, const char* key);
// True if every existing token file of the recipe says where its documents begin.
bool names_documents(const Recipe::Data& data);

// Data opened before the run was planned, because the plan depends on them. The run takes ownership of them, so nothing
// is opened, hashed or packed twice. The run opens all other data itself.
struct OpenedData {
  std::vector<std::unique_ptr<Sequences>> train;  // one per source
  std::unique_ptr<Sequences> validation;
};

// Called before a run is planned. Resolves automatic data.packing, opens packed data and data that are not labelled by
// the next token, and fills in their facts. On entry `facts` holds the packing, if the objective decides it, and the
// objective's limit on rows in the loss; the actual number replaces it. `evaluates`: the run reads data.validation and
// not data.train. `labelling`: the next token, if not given. If data cannot be opened, throws Error with the facts of
// those that could; missing files that need not be opened here are left to the run.
OpenedData resolve_data(const Recipe& recipe, DataFacts& facts, bool evaluates, const MakeLabelling& labelling);

// The inputs of opening data, and the results for comparison between ranks.
struct OpenContext {
  std::int64_t vocabulary;  // the model's
  // Called with the files of each source.
  std::function<void(std::span<const TokenFile>)> check;
  std::vector<comm::FileFingerprint>& fingerprints;
  // The memory for the index and labels of the sequences (Sequences::keep_in).
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  MakeLabelling labelling = {};          // the next token, if not given
  Packing packing = Packing::automatic;  // DataFacts::packing
};

// The number of sequences of data.train in an epoch; nullopt if its files do not exist. `packing`: DataFacts::packing.
// `opened`: the part of it that resolve_data() opened; packed here if necessary.
std::optional<std::uint64_t> training_sequences(const Recipe& recipe, Packing packing, OpenedData opened,
                                                std::int64_t vocabulary);

// Opens data.train, packed by data.packing. `opened`: the part of it that resolve_data() opened. Throws Error if a file
// is invalid or contains nothing to learn.
Batches open_training_data(const Recipe& recipe, const OpenContext& context,
                           std::vector<std::unique_ptr<Sequences>> opened = {});
// Opens data.validation: every label once, up to the number of sequences that the run evaluates.
std::unique_ptr<Sequences> open_validation_data(const Recipe& recipe, const OpenContext& context,
                                                std::unique_ptr<Sequences> opened = {});
// Makes the same checks for a run that does not evaluate, without reading anything into memory. Labels and lengths are
// not checked.
void check_validation_data(const Recipe& recipe, const OpenContext& context);
// XXH3-64 (16 hex digits) of the contents of opened files, independent of their paths; empty if there are none.
std::string hash_of_contents(std::span<const comm::FileFingerprint> files);
// The same hash for the files of data.validation, which need not be open.
std::string validation_hash(const Recipe::Data& data);
// The maximum number of sequences of data.validation that an evaluation of the run reads.
std::uint64_t max_validation_sequences(const Recipe& recipe);

}  // namespace strata::runtime
