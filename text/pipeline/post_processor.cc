#include "text/pipeline/post_processor.h"

#include <optional>
#include <utility>

#include "text/pipeline/vocabulary.h"

namespace strata::text {
namespace {

std::uint32_t id_at(const Json& json) {
  return static_cast<std::uint32_t>(json.integer(0, kMaxId));
}

// ["[CLS]", 101]
std::uint32_t pair_id(const Json& json) {
  std::optional<std::uint32_t> id;
  std::size_t n = 0;
  json.each([&](const Json& part) {
    if (n++ == 1) id = id_at(part);
  });
  if (!id || n != 2) json.wrong("a token and its id");
  return *id;
}

Surroundings from_template(const Json& json) {
  Surroundings out;
  bool behind = false;
  const auto specials = json.find("special_tokens");
  json.at("single").each([&](const Json& part) {
    if (const auto sequence = part.find("Sequence")) {
      if (behind || sequence->at("id").text() != "A") part.unsupported("a template of a single text with more than A");
      behind = true;
      return;
    }
    const std::string_view name = part.at("SpecialToken").at("id").text();
    if (!specials) json.wrong("an object with the key \"special_tokens\"");
    specials->at(name).at("ids").each([&](const Json& id) { (behind ? out.behind : out.before).push_back(id_at(id)); });
  });
  if (!behind) json.wrong("a template \"single\" with the sequence A");
  return out;
}

}  // namespace

Surroundings make_surroundings(const Json& json) {
  const std::string_view type = json.type();
  if (type == "ByteLevel") return {};
  if (type == "TemplateProcessing") return from_template(json);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    return {{pair_id(json.at("cls"))}, {pair_id(json.at("sep"))}};
  }
  if (type != "Sequence") json.unsupported(fmt::format("the post-processor {}", shortened(type)));
  Surroundings out;
  // Each one works on what those before it made.
  json.at("processors").each([&](const Json& one) {
    Surroundings outer = make_surroundings(one);
    outer.before.insert(outer.before.end(), out.before.begin(), out.before.end());
    out.before = std::move(outer.before);
    out.behind.insert(out.behind.end(), outer.behind.begin(), outer.behind.end());
  });
  return out;
}

}  // namespace strata::text
