#include "text/template/template.h"

#include <algorithm>
#include <ctime>

#include "text/template/interpreter.h"
#include "text/template/syntax/lexer.h"
#include "text/template/syntax/syntax.h"
#include "text/unicode/utf8.h"

namespace strata::text::jinja {
namespace {

bool has_generation(const Block& block) {
  return std::any_of(block.begin(), block.end(), [](const Statement& statement) {
    return statement.kind == Statement::Kind::generation ||
           std::any_of(statement.blocks.begin(), statement.blocks.end(), has_generation);
  });
}

std::tm local_time() {
  const std::time_t now = std::time(nullptr);
  std::tm out{};
  localtime_r(&now, &out);
  return out;
}

}  // namespace

Template::Template(std::string_view source, std::string name) : name_(std::move(name)) {
  if (!is_valid_utf8(source)) fail(Exit::usage, "{} is not UTF-8: convert it, for example with iconv -t UTF-8", name_);
  try {
    block_ = parse(source);
  } catch (const SyntaxFault& fault) {
    fail(Exit::usage, "{}, line {}: {}", name_, fault.line, fault.message);
  }
  has_generation_ = jinja::has_generation(block_);
}

Rendered Template::render(const Value& variables, const Limits& limits, std::optional<std::tm> now) const {
  Interpreter interpreter(variables, limits, now ? *now : local_time());
  try {
    return interpreter.run(block_);
  } catch (const Fault& fault) {
    fail(Exit::usage, "{}, line {}: {}", name_, interpreter.line(), fault.what());
  }
}

}  // namespace strata::text::jinja
