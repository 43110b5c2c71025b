#pragma once
// runtime/recipe/names/ answers a user who writes a name that Strata does not have: the counterpart of another
// trainer's or framework's key (here; names_of_trainers.cc, names_of_frameworks.cc), and how far a word is from the one
// that was meant (edits.h).

#include <span>
#include <string>
#include <string_view>

namespace strata::runtime {

// The counterpart of another program's configuration key.
struct NameElsewhere {
  std::string_view name;
  std::string_view key;   // our key; empty if there is none
  std::string_view note;  // how its values differ, or a sentence that replaces the key
};

// As NameElsewhere, for several names, separated by spaces, that correspond to one key.
struct NamesElsewhere {
  std::string_view names, key, note;
};
// The keys of Hugging Face's Trainer, TRL, axolotl and LLaMA-Factory, and of what they train with.
std::span<const NamesElsewhere> names_of_trainers();
// The keys of DeepSpeed, FSDP, Accelerate and Megatron-LM.
std::span<const NamesElsewhere> names_of_frameworks();

// Both tables with one name per row.
std::span<const NameElsewhere> names_elsewhere();
// The form in which names are compared: lower case, words joined by _, so that train-iters equals train_iters.
std::string folded(std::string_view name);
// The row for a key's name or section, whatever precedes it; null if there is none.
const NameElsewhere* find_elsewhere(std::string_view key);
// "use training.micro_batch_size: in sequences of data.seq_len tokens"
std::string text_of(const NameElsewhere& name);

}  // namespace strata::runtime
