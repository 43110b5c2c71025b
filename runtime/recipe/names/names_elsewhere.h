#pragma once
// runtime/recipe/names/ finds what a user meant by a name that Strata does not have: the counterpart of another
// trainer's or framework's key (here; names_of_trainers.cc, names_of_frameworks.cc), or the known word that is nearest
// to a typo.

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strata::runtime {

// The counterpart of another program's configuration key.
struct NameElsewhere {
  std::string_view name;
  std::string_view key;   // our key; empty if there is none
  std::string_view note;  // how its values differ, or a sentence that replaces the key
  bool section = false;   // true if the answer holds for every key inside this section, too
};

// Like NameElsewhere, but for several names, separated by spaces, that correspond to one key. A name that ends in .* is
// a section; a name with dots is also known in other sections.
struct NamesElsewhere {
  std::string_view names, key, note;
};
// The keys of Hugging Face's Trainer, TRL, axolotl and LLaMA-Factory, and of the libraries that they train with.
std::span<const NamesElsewhere> names_of_trainers();
// The keys of DeepSpeed, FSDP, Accelerate and Megatron-LM.
std::span<const NamesElsewhere> names_of_frameworks();

// Both tables with one name per row.
std::span<const NameElsewhere> names_elsewhere();
// The form in which names are compared: lower case, words joined by _, so train-iters equals train_iters.
std::string folded(std::string_view name);
// The row for a key's name, regardless of its prefix, or for a section whose answer holds for every key in it; null if
// there is none.
const NameElsewhere* find_elsewhere(std::string_view key);
// True if `found` is the row of a section that contains `key`.
bool is_by_section(const NameElsewhere& found, std::string_view key);
// "use training.micro_batch_size: in sequences of data.seq_len tokens"
std::string text_of(const NameElsewhere& name);

// Phrases that several messages about names of other programs share: the unit or form of our key's value.
inline constexpr std::string_view kSequences = "in sequences of data.seq_len tokens";
inline constexpr std::string_view kTokenFile = "a token file that strata tokenize writes";
inline constexpr std::string_view kPrecision = R"("bf16", "fp16" or "fp32")";
inline constexpr std::string_view kUnits = "in units: embedding, a block, head";
inline constexpr std::string_view kRecompute = R"("block", "sqrt", "none" or a list of blocks)";
inline constexpr std::string_view kStrategies =
    R"(3 for FULL_SHARD, 2 for SHARD_GRAD_OP, 0 for NO_SHARD; for HYBRID_SHARD 3, with zero.optimizer_group = "node")";
inline constexpr std::string_view kTier = R"("device", "host" or "nvme")";

// The number of letters to insert, delete or replace, and of neighbours to swap, to turn `a` into `b` (Damerau 1964).
std::size_t edits(std::string_view a, std::string_view b);
// The fewest edits of a glob's letters after which the whole glob matches `text`: * stands for any text and ? for any
// letter, and neither counts. A list [...] counts as ?.
std::size_t edits_of_glob(std::string_view glob, std::string_view text);
// True if a word of `letters` letters with this many edits is still a typo: at most one edit, or one per `per_edit`
// letters.
bool is_typo(std::size_t edits, std::size_t letters, std::size_t per_edit);

}  // namespace strata::runtime
