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

// The token files of data.train and data.validation that are there.
std::vector<std::filesystem::path> data_files(const Recipe::Data& data);
// Opens the files of `patterns` (data.train, data.validation: `key`) as far as their beginnings and sidecars say what
// they are. Throws Error for one that is not there, or not what it should be.
void look_at_data(std::span<const std::string> patterns, const char* key);
// Whether every token file of the recipe that is there says where its documents begin.
bool names_documents(const Recipe::Data& data);

// What was opened before the run was planned, since the plan has to know of it: the run goes on with it, and opens,
// hashes and packs nothing twice. What is not there is opened by the run.
struct OpenedData {
  std::vector<std::unique_ptr<Sequences>> train;  // of each source
  std::unique_ptr<Sequences> validation;
};

// Before a run is planned: decides data.packing if it is automatic, opens packed data and those that are not labelled
// by the next token, and fills in what they came to. `facts` has the objective's limit of the rows that the loss takes,
// in whose place comes what there are. evaluates: the run reads data.validation, and not data.train. labelling: the
// next token, if not given. Throws Error if data cannot be opened, with the facts of those that could; files that are
// not there are left to the run if they need not be opened here.
OpenedData settle_data(Recipe& recipe, DataFacts& facts, bool evaluates, const MakeLabelling& labelling = {});

// What opening has to know, and gives to compare over ranks.
struct Opening {
  std::int64_t vocabulary;  // of the model
  // Called with the files of each source.
  std::function<void(std::span<const TokenFile>)> check;
  std::vector<comm::Seen>& seen;
  // Of what sequences keep (Sequences::keep_in).
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  MakeLabelling labelling = {};  // the next token, if not given
};

// Sequences of data.train, of which an epoch is made; nullopt if its files are not there. `opened` is what
// settle_data() opened of it: it is packed here if it was not.
std::optional<std::uint64_t> training_sequences(const Recipe& recipe, OpenedData opened, std::int64_t vocabulary);

// data.train, as data.packing says. `opened` is what settle_data() opened of it. Throws Error if a file is not what it
// should be, or holds nothing to learn.
Batches open_training_data(const Recipe& recipe, const Opening& opening,
                           std::vector<std::unique_ptr<Sequences>> opened = {});
// data.validation, every label once, as far as the run evaluates.
std::unique_ptr<Sequences> open_validation_data(const Recipe& recipe, const Opening& opening,
                                                std::unique_ptr<Sequences> opened = {});
// The same checks of a run that does not evaluate, without anything in memory: labels and lengths are not looked at.
void check_validation_data(const Recipe& recipe, const Opening& opening);
// Of data.validation: how many sequences the run evaluates over at most.
std::uint64_t most_validation_sequences(const Recipe& recipe);

}  // namespace strata::runtime
