#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace strata::launcher {

// Which page is drawn: of a run, or of a plan.
enum class Page : std::uint8_t { run, plan };

// One HTML file that holds all it needs: styles, scripts, and `json` for them to draw.
std::string page_html(Page page, std::string_view json);

}  // namespace strata::launcher
