// The style sheet and the script that every page carries: page.css and page.js, put into the program by the build.
#pragma once

#include <string_view>

namespace cairn::page {

[[nodiscard]] std::string_view page_style();
[[nodiscard]] std::string_view page_script();

}  // namespace cairn::page
