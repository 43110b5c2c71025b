#include "runtime/data/files/labels.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/files/mapped_file.h"
#include "base/number.h"
#include "base/quantity.h"
#include "device/ops/losses/losses.h"
#include "runtime/data/files/documents.h"

namespace strata::runtime {
namespace {

constexpr std::size_t kBitsPerWord = 32;

template <typename T>
constexpr std::uint32_t kIgnoredIn = std::numeric_limits<T>::max();

template <typename T>
std::uint32_t read(const std::uint8_t* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <typename T>
void move_to(std::pmr::memory_resource* memory, std::optional<std::pmr::vector<T>>& values) {
  std::pmr::vector<T> moved(values->begin(), values->end(), memory);
  values.emplace(std::move(moved));
}

}  // namespace

// The largest number of one or two bytes encodes the label that does not count.
LabelColumn::LabelColumn(std::uint64_t kinds)
    : width_(kinds <= kIgnoredIn<std::uint8_t>    ? 1
             : kinds <= kIgnoredIn<std::uint16_t> ? 2
                                                  : 4),
      bytes_(std::in_place) {}

LabelColumn::LabelColumn(ClassSets sets) : LabelColumn(std::uint64_t{1} << 32) {
  sets_.emplace(std::move(sets));
}

void LabelColumn::push_back(std::int32_t label) {
  const bool ignored = label == device::kIgnoredLabel;
  const auto value = static_cast<std::uint32_t>(label);
  switch (width_) {
    case 1:
      if (!ignored) STRATA_CHECK_LT(value, kIgnoredIn<std::uint8_t>);
      bytes_->push_back(static_cast<std::uint8_t>(ignored ? kIgnoredIn<std::uint8_t> : value));
      return;
    case 2: {
      if (!ignored) STRATA_CHECK_LT(value, kIgnoredIn<std::uint16_t>);
      const auto two = static_cast<std::uint16_t>(ignored ? kIgnoredIn<std::uint16_t> : value);
      const auto* at = reinterpret_cast<const std::uint8_t*>(&two);
      bytes_->insert(bytes_->end(), at, at + sizeof two);
      return;
    }
    default: {
      const auto* at = reinterpret_cast<const std::uint8_t*>(&label);
      bytes_->insert(bytes_->end(), at, at + sizeof label);
    }
  }
}

std::int32_t LabelColumn::operator[](std::uint64_t i) const {
  const std::uint8_t* at = bytes_->data() + i * width_;
  std::uint32_t value = 0, ignored = static_cast<std::uint32_t>(device::kIgnoredLabel);
  if (width_ == 1) {
    value = *at;
    ignored = kIgnoredIn<std::uint8_t>;
  } else if (width_ == 2) {
    value = read<std::uint16_t>(at);
    ignored = kIgnoredIn<std::uint16_t>;
  } else {
    value = read<std::uint32_t>(at);
  }
  return value == ignored ? device::kIgnoredLabel : static_cast<std::int32_t>(value);
}

std::uint32_t LabelColumn::counting(std::uint64_t begin, std::uint64_t count) const {
  std::uint32_t sum = 0;
  for (std::uint64_t i = begin; i < begin + count; ++i) sum += (*this)[i] != device::kIgnoredLabel;
  return sum;
}

void LabelColumn::keep_in(std::pmr::memory_resource* memory) {
  if (bytes_->get_allocator().resource() == memory) return;
  move_to(memory, bytes_);
  if (sets_) sets_->keep_in(memory);
}

ClassSets::ClassSets(std::size_t classes) : classes_(classes), ends_(std::in_place), members_(std::in_place) {
  STRATA_CHECK_LE(classes, std::size_t{1} << 16);
}

std::int32_t ClassSets::add(std::span<const std::int32_t> classes) {
  STRATA_CHECK_LT(ends_->size(), static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max()));
  for (const std::int32_t c : classes) {
    STRATA_CHECK_LT(static_cast<std::size_t>(c), classes_);
    members_->push_back(static_cast<std::uint16_t>(c));
  }
  ends_->push_back(members_->size());
  return static_cast<std::int32_t>(ends_->size() - 1);
}

std::span<const std::uint16_t> ClassSets::of(std::int32_t set) const {
  const auto number = static_cast<std::size_t>(set);
  STRATA_CHECK_LT(number, ends_->size());
  const std::uint64_t begin = number == 0 ? 0 : (*ends_)[number - 1];
  return std::span(*members_).subspan(begin, (*ends_)[number] - begin);
}

void ClassSets::write(std::int32_t set, std::span<std::uint32_t> words) const {
  STRATA_CHECK_EQ(words.size(), (classes_ + kBitsPerWord - 1) / kBitsPerWord);
  std::ranges::fill(words, 0u);
  for (const std::uint16_t c : of(set)) words[c / kBitsPerWord] |= std::uint32_t{1} << c % kBitsPerWord;
}

std::size_t ClassSets::bytes() const {
  return ends_->size() * sizeof(std::uint64_t) + members_->size() * sizeof(std::uint16_t) +
         2 * alignof(std::max_align_t);
}

void ClassSets::keep_in(std::pmr::memory_resource* memory) {
  if (ends_->get_allocator().resource() == memory) return;
  move_to(memory, ends_);
  move_to(memory, members_);
}

namespace {

using simdjson::dom::element;

// Looks up values among a model's classes.
class ClassNumbers {
 public:
  ClassNumbers(const models::Classes& classes, std::string file) : classes_(classes), file_(std::move(file)) {
    for (std::size_t i = 0; i < classes.names.size(); ++i) {
      const std::string& name = classes.names[i];
      numbers_.emplace(name, i);
      named_by_numbers_ = named_by_numbers_ || parse_number<std::int64_t>(name);
    }
  }

  std::int32_t of(const element& value, std::uint64_t line) const {
    std::int64_t whole = 0;
    std::string_view name;
    const bool number = value.get_int64().get(whole) == simdjson::SUCCESS;
    const std::string text = number ? fmt::format("{}", whole) : "";
    if (!number && value.get_string().get(name) != simdjson::SUCCESS) wrong(simdjson::minify(value), line);
    const auto found = numbers_.find(number ? text : std::string(name));
    if (found != numbers_.end()) return static_cast<std::int32_t>(found->second);
    // A column of a label vector that has no name in the data.
    if (!number && name.starts_with(models::kNumberedLabel)) {
      const auto place = parse_number<std::size_t>(name.substr(models::kNumberedLabel.size()));
      if (place && *place < classes_.names.size()) return static_cast<std::int32_t>(*place);
    }
    // A class by its number, with or without quotes. If numbers are names of classes, they have no other meaning.
    const auto of_class = number ? std::optional(whole) : parse_number<std::int64_t>(name);
    if (of_class && !named_by_numbers_ && *of_class >= 0 &&
        static_cast<std::uint64_t>(*of_class) < classes_.names.size())
      return static_cast<std::int32_t>(*of_class);
    wrong(number ? text : fmt::format("\"{}\"", name), line);
  }

 private:
  [[noreturn]] void wrong(const std::string& label, std::uint64_t line) const {
    std::string names;
    for (const std::string& name : classes_.names)
      if (names.size() < 100) names += (names.empty() ? "" : ", ") + name;
    fail(Exit::usage, "{}, line {}: the label {} is not one of the model's {} ({}{})", file_, line, label,
         classes_.names.size() == 1 ? "one class" : fmt::format("{} classes", classes_.names.size()), names,
         names.size() < 100 ? "" : ", ...");
  }

  const models::Classes& classes_;
  std::string file_;
  std::unordered_map<std::string, std::size_t> numbers_;
  bool named_by_numbers_ = false;
};

// The label whose bits stand for these classes.
std::int32_t bits_of(std::span<const std::int32_t> classes) {
  std::uint32_t bits = 0;
  for (const std::int32_t c : classes) bits |= 1U << c;
  return std::bit_cast<std::int32_t>(bits);
}

// Opens the label file that the token file's sidecar names.
MappedFile open_label_file(const TokenFile& file) {
  return open_companion(file, labels_path(file.path()), file.sidecar()->labels->hash);
}

}  // namespace

LabelColumn column_for(const models::Classes& classes) {
  switch (classes.target) {
    case device::ClassTarget::one:
      return LabelColumn(classes.names.size());
    case device::ClassTarget::many:
      if (device::class_set_words(classes.target, classes.names.size()) > 0)
        return LabelColumn(ClassSets(classes.names.size()));
      return LabelColumn(std::uint64_t{1} << classes.names.size());
    default:
      return LabelColumn(std::uint64_t{1} << 32);
  }
}

void check_label_file(const TokenFile& file) {
  if (file.sidecar() && file.sidecar()->labels) (void)open_label_file(file);
}

void read_labels(const TokenFile& file, const models::Classes& classes, bool per_token, LabelColumn& out) {
  const auto& sidecar = file.sidecar();
  const std::string tokens = file.path().string(), name = labels_path(file.path()).string();
  if (!sidecar || !sidecar->labels)
    fail(Exit::usage, "{} has no labels, which classification requires: make it with strata tokenize --labels FIELD",
         tokens);
  const std::string& problem = sidecar->labels->problem;
  const auto target = classes.target;
  using device::ClassTarget;
  const bool numbers =
      target == ClassTarget::number && (problem == "regression" || problem == "single_label_classification");
  const bool one = target == ClassTarget::one && problem == "single_label_classification";
  const bool many = target == ClassTarget::many &&
                    (problem == "multi_label_classification" || problem == "single_label_classification");
  if (per_token ? problem != "token_classification" : !numbers && !one && !many)
    fail(Exit::usage,
         "{} is for {}, but the model is for {}: choose one with training.objective and model.config.problem_type",
         tokens, problem,
         per_token                       ? "token_classification"
         : target == ClassTarget::number ? "regression"
         : target == ClassTarget::many   ? "multi_label_classification"
                                         : "single_label_classification");
  const MappedFile lines = open_label_file(file);
  const std::string_view all(reinterpret_cast<const char*>(lines.bytes().data()), lines.bytes().size());
  const ClassNumbers numbers_of(classes, name);
  const std::uint64_t before = out.size();
  simdjson::dom::parser parser;
  // There are few classes, so most lines repeat an earlier one.
  constexpr std::size_t kKnown = 1024;
  std::unordered_map<std::string_view, std::int32_t> known;
  std::vector<std::int32_t> members;
  std::uint64_t line = 0;
  for (std::size_t at = 0; at < all.size();) {
    const std::size_t end = std::min(all.find('\n', at), all.size());
    ++line;
    const std::string_view text = all.substr(at, end - at);
    at = end + 1;
    if (!per_token) {
      if (const auto found = known.find(text); found != known.end()) {
        out.push_back(found->second);
        continue;
      }
    }
    const auto corrupt = [&] { fail(Exit::corrupt, "{}, line {}: expected a label: tokenize again", name, line); };
    element root, value;
    simdjson::dom::array list;
    if (parser.parse(text.data(), text.size()).get(root) != simdjson::SUCCESS) corrupt();
    const bool single = root["label"].get(value) == simdjson::SUCCESS;
    if (!single && root["labels"].get_array().get(list) != simdjson::SUCCESS) corrupt();
    if (single ? per_token : target == ClassTarget::number || (!per_token && target == ClassTarget::one)) corrupt();
    if (per_token) {
      for (const element token : list)
        out.push_back(token.is_null() ? device::kIgnoredLabel : numbers_of.of(token, line));
    } else if (target == ClassTarget::number) {
      double number = 0;
      if (value.get_double().get(number) != simdjson::SUCCESS)
        fail(Exit::usage, "{}, line {}: a regression needs numbers, but this is {}", name, line,
             simdjson::minify(root));
      out.push_back(std::bit_cast<std::int32_t>(static_cast<float>(number)));
    } else if (target == ClassTarget::one) {
      out.push_back(numbers_of.of(value, line));
    } else {
      members.clear();
      if (single)
        members.push_back(numbers_of.of(value, line));
      else
        for (const element one_of : list) members.push_back(numbers_of.of(one_of, line));
      out.push_back(out.sets() ? out.sets()->add(members) : bits_of(members));
    }
    if (!per_token && known.size() < kKnown) known.emplace(text, out[out.size() - 1]);
  }
  const std::uint64_t labels = out.size() - before;
  if (line != sidecar->labels->count || (per_token && labels != file.count()))
    fail(Exit::corrupt, "{} has labels of {} and {}, but {} says {} and {}: tokenize again", name,
         counted(line, "document"), counted(labels, "token"), sidecar_path(file.path()).string(),
         sidecar->labels->count, file.count());
}

}  // namespace strata::runtime
