#pragma once
// models/files/ is the disk's side of a model: config.json (here), named shapes (presets.h), tensors (safetensors.h,
// safetensors_writer.h) and end-of-text tokens (end_tokens.h), all as Hugging Face lays them out.

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace strata::models {

// A config.json, flat: a nested key is "rope_parameters.rope_theta". A key of the file that has a dot itself
// ("transformers.js_config") is kept and read by nothing (dotted_keys()), also if a nested key has the same path. NaN,
// Infinity and numbers of any size are read as Python reads them. Remembers which keys were read, so that the rest can
// be named (unread()), and what is to be said of those that were (remarks()); for that reason not to be shared between
// threads. Errors: Exit::corrupt naming file and key, or Exit::usage if `model.config.*` gave the value.
class Config {
 public:
  struct Raw {  // an array, or an object that is empty or has a dot in a key: its JSON text
    std::string json;
    bool operator==(const Raw&) const = default;
  };
  using Value = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Raw>;

  // `source` names the text in errors. At most 1 MiB and 16 levels deep.
  static Config parse(std::string_view json, std::string source);
  // directory/config.json.
  static Config read(const std::filesystem::path& directory);
  // Replaces or adds one key by JSON text: what `model.config.KEY` does. An object replaces all of KEY.*.
  void override_key(const std::string& key, std::string_view json);

  // Adds a key that the text does not have: what it says in another way.
  void add(const std::string& key, Value value) { values_.emplace(key, std::move(value)); }

  const std::string& source() const { return source_; }
  // There and not null. The accessors treat null as absent.
  bool has(std::string_view key) const;
  // The value's JSON text ("{...}" of an object, "null" if absent), and the names of the root's keys. Neither marks
  // anything as read.
  std::string json(std::string_view key) const;
  std::vector<std::string> root_keys() const;
  // There and null: for keys whose absence means something else.
  bool is_null(std::string_view key) const;
  // The first of `keys` that has(), or the first: for keys with an older and a newer spelling.
  std::string_view spelled(std::initializer_list<std::string_view> keys) const;

  std::int64_t require_int(std::string_view key) const;  // at least 1
  std::int64_t int_or(std::string_view key, std::int64_t otherwise) const;
  double require_number(std::string_view key) const;
  double number_or(std::string_view key, double otherwise) const;
  bool bool_or(std::string_view key, bool otherwise) const;
  std::string require_text(std::string_view key) const;
  std::string text_or(std::string_view key, std::string_view otherwise) const;
  // The same of a name that may be written as a number (those of id2label).
  std::string require_label(std::string_view key) const;
  // The strings of an array of strings (`architectures`, `layer_types`), or the one that stands in its place; empty if
  // absent.
  std::vector<std::string> texts(std::string_view key) const;
  // An integer, or those of an array of integers (`eos_token_id`); empty if absent.
  std::vector<std::int64_t> integers(std::string_view key) const;
  // Throws where the key is neither absent nor an object: the keys looked for inside it would all seem absent.
  void require_object(std::string_view key, std::string_view allowed) const;
  // Keys inside the object `key`, without it, in byte order; none if it is no object.
  std::vector<std::string> keys_inside(std::string_view key) const;

  // Marks keys as read without reading them (those that do not change the mathematics).
  void ignore(std::initializer_list<std::string_view> keys) const;
  // Keys that are there, are not null and were never read; in byte order.
  std::vector<std::string> unread() const;
  // The root's keys that have a dot themselves and are not null; in byte order.
  std::vector<std::string> dotted_keys() const;
  // Keeps a sentence that the user should read; once, however often it is said.
  void remark(std::string sentence) const;
  const std::vector<std::string>& remarks() const { return remarks_; }
  // True if `model.config.*` set this key.
  bool overridden(std::string_view key) const;
  // "KEY of SOURCE" or "model.config.KEY", for errors.
  std::string describe(std::string_view key) const;

  // The whole configuration as JSON, keys in byte order: for export and checkpoints.
  std::string to_json() const;

 private:
  // Null if absent. Throws where the key is an object: taken for absent, it would count for nothing.
  const Value* lookup(std::string_view key, std::string_view allowed) const;
  // The first of the keys inside the object `key`, or null if it is none.
  const std::string* first_inside(std::string_view key) const;
  [[noreturn]] void wrong_type(std::string_view key, std::string_view allowed) const;

  std::string source_;
  std::map<std::string, Value, std::less<>> values_;
  std::set<std::string, std::less<>> overridden_;
  std::map<std::string, std::string, std::less<>> dotted_;  // keys of the root with a dot in them -> JSON text
  mutable std::set<std::string, std::less<>> read_;
  mutable std::vector<std::string> remarks_;
};

}  // namespace strata::models
