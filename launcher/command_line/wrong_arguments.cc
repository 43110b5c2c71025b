#include "launcher/command_line/wrong_arguments.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>

#include "base/words.h"
#include "runtime/recipe/keys.h"
#include "runtime/recipe/names/names_elsewhere.h"

namespace strata::launcher {
namespace {

// The option without its dashes and value: "max-steps" for --max-steps=3.
std::string_view name_in(std::string_view word) {
  word.remove_prefix(std::min(word.find_first_not_of('-'), word.size()));
  return word.substr(0, word.find('='));
}

// The key with this full name, otherwise the only key whose last part it is; null if there is none.
const runtime::RecipeKey* key_called(std::string_view name) {
  const runtime::RecipeKey* const key = runtime::find_key(name);
  return key ? key : runtime::key_in_any_section(name);
}

// The command's option whose name is the fewest edits away from `name`, with at most one edit per `per_edit` letters;
// empty if all are too far away.
std::string option_meant(const CLI::App& command, std::string_view name, std::size_t per_edit = 4) {
  std::string nearest;
  std::size_t fewest = name.size();
  for (const CLI::Option* option : command.get_options())
    for (const std::string& known : option->get_lnames()) {
      const std::size_t edits = runtime::edits(name, known);
      if (edits >= fewest || !runtime::is_typo(edits, name.size(), per_edit)) continue;
      nearest = known;
      fewest = edits;
    }
  return nearest;
}

// Options of torchrun and Slurm, folded, that have a counterpart among the options of some of our commands.
struct OptionElsewhere {
  std::string_view name, option;
};
constexpr OptionElsewhere kOptionsElsewhere[] = {{"nproc_per_node", "--ranks-per-node"},
                                                 {"ntasks_per_node", "--ranks-per-node"}};

// "use --ranks-per-node 2" if the command has the counterpart of another program's option; otherwise empty.
std::string option_for(const CLI::App& command, std::string_view name, std::string_view value) {
  const auto found = std::ranges::find(kOptionsElsewhere, runtime::folded(name), &OptionElsewhere::name);
  if (found == std::end(kOptionsElsewhere) || !command.get_option_no_throw(std::string(found->option))) return "";
  const bool number = !value.empty() && value.find_first_not_of("0123456789") == value.npos;  // not torchrun's "gpu"
  return fmt::format("use {} {}", found->option, number ? value : "N");
}

// The end of a sentence about an option that the command does not have: what the user probably meant.
std::string meaning_of(const CLI::App& command, std::string_view word, std::string_view value) {
  const std::string_view name = name_in(word);
  if (const std::string use = option_for(command, name, value); !use.empty()) return ": " + use;
  if (const std::string option = option_meant(command, name); !option.empty())
    return fmt::format(": did you mean --{}?", option);
  const std::string key_name = runtime::folded(name);
  const runtime::RecipeKey* key = key_called(key_name);
  if (const runtime::NameElsewhere* other = key ? nullptr : runtime::find_elsewhere(key_name))
    return fmt::format(": {}", runtime::text_of(*other));
  if (!key) key = runtime::similar_key(key_name);
  if (key && command.get_option_no_throw("--set"))
    return fmt::format(": it is a key of the recipe, --set {}={}", key->name, value);
  return fmt::format(" (see strata {} --help)", command.get_name());
}

// Returns the allowed value that was probably meant if CLI11 reports "VALUE not in {a,b}"; empty if none is close.
std::string value_of_list(std::string_view text) {
  constexpr std::string_view kNotIn = " not in {";
  const std::size_t at = text.find(kNotIn), close = text.rfind('}');
  if (at == text.npos || close == text.npos) return "";
  const std::size_t begin = text.find_last_of(' ', at - 1);
  const std::string_view value = text.substr(begin == text.npos ? 0 : begin + 1, at - begin - 1);
  std::string_view nearest;
  std::size_t fewest = value.size();
  for (const std::string_view known : split_list(text.substr(at + kNotIn.size(), close - at - kNotIn.size()), ',')) {
    const std::size_t edits = runtime::edits(value, known);
    if (edits >= fewest || !runtime::is_typo(edits, value.size(), 4)) continue;
    nearest = known;
    fewest = edits;
  }
  return std::string(nearest);
}

}  // namespace

std::string wrong_arguments(const CLI::App& command, const CLI::ParseError& error, std::span<const std::string> words) {
  const std::string& name = command.get_name();
  const std::string text = error.what(), hint = fmt::format("(see strata {} --help)", name);
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.starts_with("--"))
    return fmt::format("{} needs a value {}", text.substr(0, text.find(':')), hint);
  if (const std::string value = value_of_list(text); !value.empty())
    return fmt::format("{}: did you mean {}? {}", text, value, hint);
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return fmt::format("{} {}", text, hint);
  const std::vector<std::string> extras = command.remaining(true);
  const auto unexpected = [&](const std::string& word) { return std::ranges::find(extras, word) != extras.end(); };
  const auto word = std::ranges::find_if(words, unexpected);
  if (word == words.end()) return fmt::format("{} {}", text, hint);
  const std::size_t equals = word->find('=');
  const auto next = word + 1;
  const std::string value = equals != std::string::npos                      ? word->substr(equals + 1)
                            : next != words.end() && !next->starts_with('-') ? *next
                                                                             : "VALUE";
  if (word->starts_with('-'))
    return fmt::format("strata {} has no option {}{}", name, word->substr(0, equals),
                       meaning_of(command, *word, value));
  if (const runtime::RecipeKey* key = equals == std::string::npos ? nullptr : key_called(name_in(*word)))
    return fmt::format("{}: a key of the recipe follows --set, as in --set {}={}", *word, key->name, value);
  return fmt::format("strata {} takes no further argument {} {}", name, *word, hint);
}

std::string unknown_option(const CLI::App& app, std::string_view word) {
  const std::string option = option_meant(app, name_in(word), 3);  // few options, so allow more edits
  return fmt::format("strata has no option {}{} (see strata --help)", word.substr(0, word.find('=')),
                     option.empty() ? "" : fmt::format(": did you mean --{}?", option));
}

std::string unknown_command(std::string_view word, std::span<CLI::App* const> commands) {
  const auto edits = [&](const CLI::App* command) { return runtime::edits(word, command->get_name()); };
  const CLI::App* const nearest = *std::ranges::min_element(commands, {}, edits);
  const bool meant = runtime::is_typo(edits(nearest), word.size(), 2);
  return fmt::format("there is no command {}{} (see strata --help)", word,
                     meant ? ": did you mean " + nearest->get_name() + "?" : "");
}

}  // namespace strata::launcher
