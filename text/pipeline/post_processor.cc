#include <algorithm>
#include <optional>
#include <utility>

#include "text/pipeline/pipeline.h"
#include "text/subwords/vocabulary.h"

namespace strata::text {
namespace {

using Kind = TextTemplate::Kind;
using Pieces = std::vector<TextTemplate::Piece>;

// Without a template, the second text follows the first.
const Pieces kPlainPair = {{Kind::first}, {Kind::second, 0, 1}};

std::uint32_t id_at(const Json& json) {
  return static_cast<std::uint32_t>(json.integer(0, kMaxId));
}

// Reads ["[CLS]", 101].
std::uint32_t pair_id(const Json& json) {
  std::optional<std::uint32_t> id;
  std::size_t n = 0;
  json.each([&](const Json& part) {
    if (n++ == 1) id = id_at(part);
  });
  if (!id || n != 2) json.wrong("a token and its id");
  return *id;
}

std::uint32_t type_of(const Json& piece) {
  const auto type = piece.find("type_id");
  return type ? static_cast<std::uint32_t>(type->integer(0, 255)) : 0;
}

Pieces pieces_of(const Json& list, const std::optional<Json>& specials) {
  Pieces out;
  list.each([&](const Json& part) {
    if (const auto sequence = part.find("Sequence")) {
      const std::string_view id = sequence->at("id").text();
      if (id != "A" && id != "B") part.unsupported("a template with texts other than A and B");
      out.push_back({id == "A" ? Kind::first : Kind::second, 0, type_of(*sequence)});
      return;
    }
    const Json token = part.at("SpecialToken");
    if (!specials) list.wrong("an object with the key \"special_tokens\"");
    specials->at(token.at("id").text()).at("ids").each([&](const Json& id) {
      out.push_back({Kind::token, id_at(id), type_of(token)});
    });
  });
  return out;
}

std::size_t count(const Pieces& pieces, Kind kind) {
  return static_cast<std::size_t>(
      std::count_if(pieces.begin(), pieces.end(), [&](const auto& piece) { return piece.kind == kind; }));
}

TextTemplate from_template(const Json& json) {
  const auto specials = json.find("special_tokens");
  TextTemplate out{pieces_of(json.at("single"), specials), {}};
  if (count(out.single, Kind::second) > 0 || count(out.single, Kind::first) > 1)
    json.unsupported("a template of a single text with more than A");
  if (count(out.single, Kind::first) == 0) json.wrong("a template \"single\" with the sequence A");
  if (const auto pair = json.find("pair")) out.pair = pieces_of(*pair, specials);
  if (count(out.pair, Kind::first) != 1 || count(out.pair, Kind::second) != 1) out.pair.clear();
  return out;
}

// Inserts `inner` where `outer` has its single text.
Pieces nested(const Pieces& outer, const Pieces& inner) {
  Pieces out;
  for (const auto& piece : outer) {
    if (piece.kind == Kind::token)
      out.push_back(piece);
    else
      out.insert(out.end(), inner.begin(), inner.end());
  }
  return out;
}

bool adds_nothing(const TextTemplate& made) {
  return TextTemplate::added(made.single) == 0 && TextTemplate::added(made.pair) == 0;
}

}  // namespace

TextTemplate make_text_template(const Json& json) {
  const std::string_view type = json.type();
  if (type == "ByteLevel") return {.pair = kPlainPair};
  if (type == "TemplateProcessing") return from_template(json);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    const std::uint32_t cls = pair_id(json.at("cls")), sep = pair_id(json.at("sep"));
    const bool types = type == "BertProcessing";  // RobertaProcessing sets all of them to 0
    TextTemplate out{{{Kind::token, cls}, {Kind::first}, {Kind::token, sep}}, {}};
    out.pair = out.single;
    if (!types) out.pair.push_back({Kind::token, sep});
    out.pair.push_back({Kind::second, 0, types ? 1U : 0U});
    out.pair.push_back({Kind::token, sep, types ? 1U : 0U});
    return out;
  }
  if (type != "Sequence") json.unsupported(fmt::format("the post-processor {}", shortened(type)));
  TextTemplate out{.pair = kPlainPair};
  // Each one works on the result of the previous ones. Two templates for a pair cannot be combined: the library does
  // not define the result.
  json.at("processors").each([&](const Json& one) {
    TextTemplate outer = make_text_template(one);
    if (adds_nothing(out))
      out.pair = std::move(outer.pair);
    else if (!adds_nothing(outer))
      out.pair.clear();
    out.single = nested(outer.single, out.single);
  });
  return out;
}

}  // namespace strata::text
