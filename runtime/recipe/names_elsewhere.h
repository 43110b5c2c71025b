#pragma once
#include <span>
#include <string>
#include <string_view>

namespace strata::runtime {

// What a name of another program's configuration is here.
struct NameElsewhere {
  std::string_view
      name;  // Hugging Face's Trainer, TRL, axolotl, LLaMA-Factory, Accelerate, FSDP, DeepSpeed, Megatron-LM
  std::string_view key;   // the key here; empty if there is none
  std::string_view note;  // how its values differ, or a sentence in place of the key
};

// The names, divided by blanks, that stand for one key; the rest is as in NameElsewhere.
struct NamesElsewhere {
  std::string_view names, key, note;
};
// As they are written down; all else here is in find_elsewhere.cc.
std::span<const NamesElsewhere> rows_elsewhere();

// A name each.
std::span<const NameElsewhere> names_elsewhere();
// A name as it is compared: in lower case, words joined by _, so that train-iters is train_iters.
std::string folded(std::string_view name);
// The row of a key's name or section, whatever stands before it; null if there is none.
const NameElsewhere* find_elsewhere(std::string_view key);
// "use training.micro_batch_size: in sequences of data.seq_len tokens"
std::string text_of(const NameElsewhere& name);

}  // namespace strata::runtime
