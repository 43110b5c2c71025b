#include "text/pipeline/pipeline.h"

#include <algorithm>
#include <deque>
#include <initializer_list>
#include <utility>

#include "base/error.h"
#include "base/quantity.h"
#include "text/folder/class_components.h"
#include "text/json/json.h"
#include "text/split/word_boundary.h"
#include "text/subwords/model.h"
#include "text/unicode/utf8.h"

namespace strata::text {
namespace {

// Tokenizer files before version 0.9 do not name the type. The library then tries the types in this order and takes the
// first whose keys match.
std::string type_of_model(const Json& json) {
  const auto has = [&](std::initializer_list<const char*> keys) {
    return std::all_of(keys.begin(), keys.end(), [&](const char* key) { return json.find(key).has_value(); });
  };
  if (const auto type = json.find("type")) return std::string(type->text());
  if (has({"merges"})) return "BPE";
  if (const auto vocabulary = json.find("vocab"); vocabulary && vocabulary->is_array()) return "Unigram";
  if (has({"unk_token", "continuing_subword_prefix", "max_input_chars_per_word"})) return "WordPiece";
  if (has({"unk_token"})) return "WordLevel";
  json.wrong("a model with its \"type\"");
}

std::unique_ptr<Model> make_model(const Json& json, bool bytes) {
  const std::string type = type_of_model(json);
  if (type == "BPE") return make_byte_pair(json, bytes);
  if (type == "Unigram") return make_unigram(json);
  if (type == "WordPiece") return make_word_piece(json);
  if (type == "WordLevel") return make_word_level(json);
  json.unsupported(fmt::format("the model \"{}\" (BPE, Unigram, WordPiece and WordLevel are)", shortened(type)));
}

}  // namespace

struct Pipeline::Buffers final : Tokenizer::Workspace {
  RegexMatcher matcher;
  std::unique_ptr<Model::Workspace> model;
  std::deque<std::string> stages;  // one buffer per stage, for its pieces
  std::string repaired, text, other;
};

// Passes pieces from one stage to the next, and from the last stage to the model.
class Pipeline::StageSink final : public PieceSink {
 public:
  StageSink(const Pipeline& pipeline, std::size_t stage, Buffers& buffers, std::vector<std::uint32_t>& out)
      : pipeline_(pipeline), stage_(stage), buffers_(buffers), out_(out) {}
  void take(Piece piece) override {
    const auto& stages = pipeline_.pre_tokenizers_.stages;
    if (stage_ == stages.size()) return pipeline_.model_->encode(piece.text, *buffers_.model, out_);
    StageSink next(pipeline_, stage_ + 1, buffers_, out_);
    stages[stage_]->split(piece, buffers_.matcher, buffers_.stages[stage_], next);
  }

 private:
  const Pipeline& pipeline_;
  std::size_t stage_;
  Buffers& buffers_;
  std::vector<std::uint32_t>& out_;
};

std::unique_ptr<Pipeline> Pipeline::parse(std::string_view json, const std::string& file, std::string name,
                                          std::string hash, const FolderSettings& settings, bool vocabulary_only) {
  const JsonDocument document(json, file, "a tokenizer.json");
  std::unique_ptr<Pipeline> made(
      new Pipeline(document.root(), std::move(name), std::move(hash), settings, vocabulary_only));
  if (vocabulary_only)
    made->template_ = template_of_class(settings, [&](std::string_view token) { return made->id_of(token); });
  else
    made->compare_template(settings);
  made->template_.truncates_left = settings.truncates_left;
  return made;
}

Pipeline::Pipeline(const Json& json, std::string name, std::string hash, const FolderSettings& settings,
                   bool vocabulary_only)
    : Tokenizer(std::move(name), std::move(hash)) {
  const Json model = json.at("model");
  const bool pairs = type_of_model(model) == "BPE";
  // The components that the class derives from the settings replace those of the file.
  static const std::string kPlace = "tokenizer_config.json";
  std::optional<JsonDocument> of_class[2];
  const auto component = [&](const char* key, auto&& made_of, std::optional<JsonDocument>& kept) {
    std::optional<Json> found = json.find(key);
    if (const auto made = found ? made_of(settings, *found, notes_) : std::nullopt)
      found = kept.emplace(*made, kPlace, "a component").root();
    return found;
  };
  const auto normalizer = component("normalizer", normalizer_of_class, of_class[0]);
  const auto pre_tokenizer = component("pre_tokenizer", pre_tokenizer_of_class, of_class[1]);
  if (!vocabulary_only)
    if (auto note = note_on_components(settings, normalizer, pre_tokenizer)) notes_.push_back(*std::move(note));
  if (normalizer) {
    normalizers_ = make_normalizers(*normalizer);
    letters_of_ascii_ = normalizer->type() != "NFC";
  }
  if (pre_tokenizer) pre_tokenizers_ = make_pre_tokenizers(*pre_tokenizer, pairs && takes_bytes(model));
  model_ = make_model(model, pre_tokenizers_.bytes);
  const Vocabulary& vocabulary = model_->vocabulary();
  vocab_size_ = vocabulary.limit();
  if (const std::string* twice = vocabulary.repeated())
    notes_.push_back(
        fmt::format("the vocabulary has {} twice: the last one counts, as in transformers",
                    vocabulary.repetitions() == 1
                        ? fmt::format("\"{}\"", shortened(*twice))
                        : fmt::format("{} tokens (\"{}\" is one)", vocabulary.repetitions(), shortened(*twice))));
  if (const std::string* sharing = vocabulary.sharing()) {
    // If a token occurs twice, possibly only the id that does not count is shared.
    const auto id = vocabulary.find(*sharing);
    if (const auto* earlier = id ? vocabulary.token(*id) : nullptr)
      notes_.push_back(
          fmt::format("the vocabulary gives {} an id that an earlier token has (\"{}\" has {}, as does \"{}\"): such "
                      "an id is decoded as the earlier token (by transformers, as either)",
                      counted(vocabulary.shared_ids(), "token"), shortened(*sharing), *id, shortened(*earlier)));
  }
  read_added(json, settings);
  if (const auto found = json.find("post_processor")) template_ = make_text_template(*found);
  for (const auto* pieces : {&template_.single, &template_.pair}) {
    for (const auto& piece : *pieces) vocab_size_ = std::max(vocab_size_, piece.id + 1);
  }
  if (const auto found = json.find("decoder")) {
    decoders_ = make_decoders(*found);
    has_decoder_ = true;
  }
  if (const AddedToken* eos = settings.token("eos_token")) {
    end_of_text_ = id_of(eos->content);
  } else if (!settings.is_null("eos_token")) {
    // Try the class's own token first, because RoBERTa's vocabulary has <|endoftext|> as a word.
    if (const std::string own = settings.token_text("eos_token"); !own.empty()) end_of_text_ = id_of(own);
    for (const char* known : {"<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>"}) {
      if (!end_of_text_) end_of_text_ = id_of(known);
    }
  }
  mask_token_ = settings.token_text("mask_token");
  for (const char separator : {'\n', ' '}) {
    if (may_cut_at(separator)) separators_ += separator;
  }
  if (separators_.empty() && pairs) find_space_mark(model, normalizer, pre_tokenizer);
}

void Pipeline::read_added(const Json& json, const FolderSettings& settings) {
  if (const auto found = json.find("added_tokens")) added_ = read_added_tokens(*found);
  for (AddedToken& token : added_) {
    const auto of_model = model_->vocabulary().find(token.content);
    // If the vocabulary has the token twice, this is the earlier id. The library takes the last id here, too.
    if (const std::string* same = model_->vocabulary().token(token.id); of_model && same && *same == token.content)
      token.id = *of_model;
    if (of_model && *of_model != token.id)
      json.at("added_tokens").wrong(fmt::format("\"{}\" under the id {}, as in the model", token.content, *of_model));
  }
  added_ = with_added_tokens(
      std::move(added_), settings, [&](std::string_view token) { return model_->vocabulary().find(token); },
      static_cast<std::uint32_t>(model_->vocabulary().count()), notes_);
  std::vector<AddedTokenFinder::Pattern> raw, normalized;
  RegexMatcher matcher;
  for (const bool special : {true, false}) {  // the order in which the first of two equal tokens is found
    for (const AddedToken& token : added_) {
      if (token.special != special) continue;
      if (!added_vocabulary_.add(token.content, token.id)) continue;
      vocab_size_ = std::max(vocab_size_, token.id + 1);
      if (special_.size() <= token.id) special_.resize(token.id + std::size_t{1});
      special_[token.id] = special;
      std::string text = token.content, other;
      for (const auto& normalizer : normalizers_) {
        if (!token.normalized) break;
        other.clear();
        normalizer->apply(text, matcher, other);
        std::swap(text, other);
      }
      (token.normalized ? normalized : raw).push_back({std::move(text), &token});
    }
  }
  raw_.emplace(raw);
  normalized_.emplace(normalized);
}

// For other classes, transformers keeps tokenizer.json's template and ignores add_bos_token and add_eos_token.
void Pipeline::compare_template(const FolderSettings& settings) {
  const auto compare = [&](const char* name, std::optional<bool> wanted, const char* key, const auto& piece) {
    const auto id = id_of(settings.token_text(key));
    if (!wanted || !id) return;
    const bool adds = piece.kind == TextTemplate::Kind::token && piece.id == *id;
    if (adds != *wanted)
      notes_.push_back(
          fmt::format("{} = {} in tokenizer_config.json changes nothing, as in transformers 5: the template in "
                      "tokenizer.json counts, which adds {}",
                      name, *wanted, adds ? "it" : "none"));
  };
  TextTemplate of_class = template_of_class(settings, [&](std::string_view token) { return id_of(token); });
  const auto same = [](const auto& a, const auto& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
      return one.kind == other.kind && one.id == other.id && one.type == other.type;
    });
  };
  if (settings.makes_template()) {
    // These classes put their own template around a text, with the tokens that the folder names.
    if (TextTemplate::added(of_class.single) == 0 ||
        (same(of_class.single, template_.single) && same(of_class.pair, template_.pair)))
      return;
    notes_.push_back(fmt::format("the template of {} is used, as in transformers; that of tokenizer.json differs",
                                 settings.tokenizer_class));
    template_ = std::move(of_class);
    return;
  }
  if (template_.single.empty()) return;
  compare("add_bos_token", settings.add_bos, "bos_token", template_.single.front());
  compare("add_eos_token", settings.add_eos, "eos_token", template_.single.back());
}

std::vector<std::uint32_t> Pipeline::special_ids() const {
  std::vector<std::uint32_t> out;
  for (std::uint32_t id = 0; id < special_.size(); ++id)
    if (special_[id]) out.push_back(id);
  return out;
}

std::optional<std::uint32_t> Pipeline::id_of(std::string_view token) const {
  const auto added = added_vocabulary_.find(token);
  return added ? added : model_->vocabulary().find(token);
}

std::unique_ptr<Tokenizer::Workspace> Pipeline::workspace() const {
  auto made = std::make_unique<Buffers>();
  made->model = model_->workspace();
  made->stages.resize(pre_tokenizers_.stages.size());
  return made;
}

void Pipeline::encode(std::string_view text, bool add_special, Workspace& workspace,
                      std::vector<std::uint32_t>& out) const {
  auto& buffers = static_cast<Buffers&>(workspace);
  if (!is_valid_utf8(text)) {
    buffers.repaired.clear();
    append_repaired(text, buffers.repaired);
    text = buffers.repaired;
  }
  const auto text_at = std::find_if(template_.single.begin(), template_.single.end(),
                                    [](const auto& piece) { return piece.kind == TextTemplate::Kind::first; });
  const auto add = [&](auto begin, auto end) {
    for (; add_special && begin != end; ++begin) out.push_back(begin->id);
  };
  add(template_.single.begin(), text_at);
  raw_->split(text, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr) {
      out.push_back(token->id);
      return;
    }
    bool first = part.data() == text.data();
    if (normalizers_.empty()) return encode_normalized(part, first, buffers, out);
    buffers.text = part;
    for (const auto& normalizer : normalizers_) {
      first = first && !normalizer->drops_beginning(buffers.text);
      buffers.other.clear();
      normalizer->apply(buffers.text, buffers.matcher, buffers.other);
      std::swap(buffers.text, buffers.other);
    }
    encode_normalized(buffers.text, first, buffers, out);
  });
  add(text_at + 1, template_.single.end());
}

void Pipeline::encode_normalized(std::string_view text, bool first, Buffers& buffers,
                                 std::vector<std::uint32_t>& out) const {
  StageSink sink(*this, 0, buffers, out);
  normalized_->split(text, [&](std::string_view part, const AddedToken* token) {
    if (token != nullptr) {
      out.push_back(token->id);
    } else {
      sink.take({part, first && part.data() == text.data()});
    }
  });
}

std::string Pipeline::decode(std::span<const std::uint32_t> ids, bool skip_special) const {
  std::vector<std::string> tokens;
  for (const std::uint32_t id : ids) {
    if (skip_special && id < special_.size() && special_[id]) continue;
    const std::string* token = added_vocabulary_.token(id);
    if (token == nullptr) token = model_->vocabulary().token(id);
    if (token == nullptr) continue;
    if (!has_decoder_ && !tokens.empty()) tokens.emplace_back(" ");
    tokens.push_back(*token);
  }
  for (const Decoder& decoder : decoders_) decoder(tokens);
  std::string out;
  for (const std::string& token : tokens) out += token;
  return out;
}

bool Pipeline::may_cut_at(char separator) const {
  CutSafety safety = CutSafety::keeps;
  for (const auto& normalizer : normalizers_) safety = combined(safety, normalizer->cut_safety(separator));
  bool hidden = false;  // whether later stages see another character in place of the separator
  for (const auto& stage : pre_tokenizers_.stages) {
    const CutSafety its = stage->cut_safety(separator);
    safety = combined(safety, hidden && its == CutSafety::makes ? CutSafety::keeps : its);
    hidden = hidden || stage->hides_separators();
  }
  const bool across = std::any_of(added_.begin(), added_.end(), [&](const AddedToken& token) {
    return token.right_strip || token.content.find(separator) != std::string::npos;
  });
  return safety == CutSafety::makes && !across;
}

// Recognizes pipelines like those of Llama 2 and Gemma: a Replace of spaces, with or without Prepend, and no
// pre-tokenizer (or one that looks only for spaces, of which none are left); or Metaspace without splitting.
void Pipeline::find_space_mark(const Json& model, const std::optional<Json>& normalizer,
                               const std::optional<Json>& pre_tokenizer) {
  std::vector<Json> rewrites;
  if (normalizer && normalizer->type() == "Sequence")
    normalizer->at("normalizers").each([&](const Json& one) { rewrites.push_back(one); });
  else if (normalizer)
    rewrites.push_back(*normalizer);
  std::string mark;
  bool prepended = false;
  for (const Json& one : rewrites) {
    if (one.type() == "Prepend" && mark.empty() && !prepended) {
      prepended = true;
    } else if (one.type() == "Replace" && mark.empty() && one.at("pattern").text_or("String", "") == " ") {
      mark = one.at("content").text();
    } else {
      return;
    }
  }
  if (prepended && rewrites.front().at("prepend").text() != mark) return;
  if (pre_tokenizer && pre_tokenizer->type() == "Metaspace" && mark.empty() && !prepended) {
    const MetaspaceOptions options = metaspace_options(*pre_tokenizer);
    if (!options.split) mark = options.replacement;
  } else if (pre_tokenizer &&
             (pre_tokenizer->type() != "Split" || pre_tokenizer->at("pattern").text_or("String", "") != " ")) {
    return;
  }
  // These options make the model treat the ends of a text differently, and so the ends of its parts after a cut.
  if (model.flag_or("ignore_merges", false) || !model.text_or("end_of_word_suffix", "").empty() ||
      !model.text_or("continuing_subword_prefix", "").empty())
    return;
  if (mark.empty() || mark == " " || !words_stay_apart(model_->vocabulary(), mark)) return;
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  if (std::any_of(added_.begin(), added_.end(), [&](const AddedToken& token) {
        const std::string& text = token.content;
        // Next to an added token that is a word, the text continues as if it began there, with its own mark.
        const bool word = !text.empty() && (is_letter(text.front()) || is_letter(text.back()));
        return token.right_strip || (prepended && word) || text == mark || reaches_over(text, mark) ||
               text.find(' ') != std::string::npos;
      }))
    return;
  separators_.assign(1, ' ');
  drops_space_ = prepended;
  letters_of_ascii_ = true;
}

Tokenizer::TextCut Pipeline::safe_cut(std::string_view text, std::size_t limit) const {
  const std::size_t at = last_word_boundary(text, limit, separators_, letters_of_ascii_);
  return {at, at == 0 || !drops_space_ ? at : at + 1};
}

}  // namespace strata::text
