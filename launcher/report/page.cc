#include "launcher/report/page.h"

#include "base/error.h"
#include "launcher/report/pages.h"  // made by embed.cmake of the files beside this one

namespace strata::launcher {
namespace {

void replace(std::string& text, std::string_view mark, std::string_view by) {
  const std::size_t at = text.find(mark);
  STRATA_CHECK(at != std::string::npos);
  text.replace(at, mark.size(), by);
}

// JSON within a script element: what would end that is written otherwise, with the same meaning.
std::string within_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) c == '<' ? out += "\\u003c" : out += c;
  return out;
}

}  // namespace

std::string page_html(Page page, std::string_view json) {
  std::string text(pages::kPage);
  replace(text, "@STYLE@", pages::kStyle);
  replace(text, "@CHARTS@", pages::kCharts);
  replace(text, "@PAGE@", page == Page::run ? pages::kReport : pages::kPlan);
  replace(text, "@DATA@", within_script(json));  // last: it may hold anything
  return text;
}

}  // namespace strata::launcher
