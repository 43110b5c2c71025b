#pragma once
// models/files/ reads and writes a model's files in Hugging Face's layout: config.json with what follows from it, named
// shapes and end-of-text tokens (this header); tensors (safetensors.h).

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata::models {

// A flat config.json: a nested key is "rope_parameters.rope_theta". A key that contains a dot in the file
// ("transformers.js_config") is kept but never read (dotted_keys()), even if a nested key has the same path. NaN,
// Infinity and numbers of any size are read as Python reads them. A Config records which keys were read, to list the
// rest (unread()), and collects notes about the keys that were read (notes()). So threads must not share it. Errors:
// Exit::corrupt with file and key, or Exit::usage if `model.config.*` gave the value.
class Config {
 public:
  struct Raw {  // an array, or an object that is empty or has a key with a dot: its JSON text
    std::string json;
    bool operator==(const Raw&) const = default;
  };
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Raw>;

  // `source` names the text in errors. The text has at most 1 MiB and 16 levels.
  static Config parse(std::string_view json, std::string source);
  // Reads directory/config.json.
  static Config read(const std::filesystem::path& directory);
  // Replaces or adds one key with JSON text, for `model.config.KEY`. An object replaces all of KEY.*.
  void override_key(const std::string& key, std::string_view json);

  // Removes a key and everything inside it.
  void remove(const std::string& key);

  // Adds a key that the text does not contain but implies.
  void add(const std::string& key, Value value) { values_.emplace(key, std::move(value)); }

  const std::string& source() const { return source_; }
  // True if the key exists and is not null. The accessors treat null as absent.
  bool has(std::string_view key) const;
  // The value's JSON text ("{...}" for an object, "null" if absent), and the names of the root's keys. Neither call
  // marks a key as read.
  std::string json(std::string_view key) const;
  std::vector<std::string> root_keys() const;
  // True if the key exists and is null, for keys whose absence means something else.
  bool is_null(std::string_view key) const;
  // The first of `keys` that has(), or the first of all: for keys with an older and a newer spelling.
  std::string_view spelled(std::initializer_list<std::string_view> keys) const;

  std::int64_t require_int(std::string_view key) const;  // at least 1
  std::int64_t int_or(std::string_view key, std::int64_t otherwise) const;
  double require_number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  bool bool_or(std::string_view key, bool otherwise) const;
  std::string require_text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  // The same, for a name that may be written as a number (in id2label).
  std::string require_label(std::string_view key) const;
  // The strings in an array (`architectures`, `layer_types`), or a single string; empty if absent.
  std::vector<std::string> texts(std::string_view key) const;
  // The integers in an array (`eos_token_id`), or a single integer; empty if absent.
  std::vector<std::int64_t> integers(std::string_view key) const;
  // Throws if the key is present but not an object, because all keys inside it would then seem absent.
  void require_object(std::string_view key, std::string_view allowed) const;
  // The keys inside the object `key`, without its prefix, in byte order; none if it is not an object.
  std::vector<std::string> keys_inside(std::string_view key) const;

  // Marks keys as read without reading them, because they do not change the mathematics.
  void ignore(std::initializer_list<std::string_view> keys) const;
  // Keys that exist, are not null and were never read, in byte order.
  std::vector<std::string> unread() const;
  // The root's keys that contain a dot themselves and are not null, in byte order.
  std::vector<std::string> dotted_keys() const;
  // Keeps a note for the user, without duplicates.
  void add_note(std::string sentence) const;
  const std::vector<std::string>& notes() const { return notes_; }
  // True if `model.config.*` set this key.
  bool overridden(std::string_view key) const;
  // "KEY of SOURCE" or "model.config.KEY", for messages.
  std::string describe(std::string_view key) const;

  // The whole configuration as JSON, with keys in byte order: for export and checkpoints.
  std::string to_json() const;

 private:
  // Null if absent. Throws if the key is an object, which would otherwise be ignored.
  const Value* lookup(std::string_view key, std::string_view allowed) const;
  // The first of the keys inside the object `key`, or null if it is not an object.
  const std::string* first_inside(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view allowed) const;

  std::string source_;
  std::map<std::string, Value, std::less<>> values_;
  std::set<std::string, std::less<>> overridden_;
  std::map<std::string, std::string, std::less<>> dotted_;  // keys of the root that contain a dot -> JSON text
  mutable std::set<std::string, std::less<>> read_;
  mutable std::vector<std::string> notes_;
};

// The names that `model.preset` accepts.
std::span<const std::string_view> preset_names();
// A preset's complete config.json. For an unknown name, throws an Error{usage} that lists the names.
std::string preset_config(std::string_view name);

// The tokens that end a text: `eos_token_id` in generation_config.json, otherwise in config.json, a number or a list.
// Empty if neither has it. Throws Error{corrupt} if the key has another type.
std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory);
// The same if config.json has been read already: `description`.
std::vector<std::uint32_t> end_tokens(const std::filesystem::path& directory, const Config& description);

}  // namespace strata::models
