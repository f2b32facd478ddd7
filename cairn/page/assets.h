// The style sheet and the script of every page: page.css and page.js, which the build embeds into the program.
#pragma once

#include <string_view>

namespace cairn::page {

[[nodiscard]] std::string_view page_style();
[[nodiscard]] std::string_view page_script();

}  // namespace cairn::page
