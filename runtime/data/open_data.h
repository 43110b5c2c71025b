#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <memory_resource>
#include <span>
#include <vector>

#include "comm/same_files.h"
#include "runtime/data/batches.h"
#include "runtime/data/files/tokens.h"
#include "runtime/data/sequences/sequences.h"
#include "runtime/recipe/recipe.h"

namespace strata::runtime {

// The token files of data.train and data.validation that are there.
std::vector<std::filesystem::path> data_files(const Recipe::Data& data);
// Whether every token file of the recipe that is there says where its documents begin.
bool names_documents(const Recipe::Data& data);

// Before a run is planned: decides data.packing where it is automatic, and sets what of packed data the plan has to
// know. evaluates: the run reads data.validation, and not data.train. Throws Error if documents cannot be packed; files
// that are not there are left to those who open them, unless documents are asked for.
// Packed data replace data.loss_rows by what they came to, where the recipe has any. labelling: the next token, if not
// given.
void settle_data(Recipe& recipe, bool evaluates, const MakeLabelling& labelling = {});

// What opening has to know, and gives to compare over ranks.
struct Opening {
  std::int64_t vocabulary;  // of the model
  // Called with the files of each source.
  std::function<void(std::span<const TokenFile>)> check;
  std::vector<comm::Seen>& seen;
  // Of the index of packed sequences.
  std::pmr::memory_resource* memory = std::pmr::get_default_resource();
  MakeLabelling labelling = {};  // the next token, if not given
};

// data.train, as data.packing says. Throws Error where a file is not what it should be, or holds nothing to learn.
Batches open_training_data(const Recipe& recipe, const Opening& opening);
// data.validation, every label once.
std::unique_ptr<Sequences> open_validation_data(const Recipe& recipe, const Opening& opening);

}  // namespace strata::runtime
