// The files that the server serves as they are. They are part of the program: a server needs no folder beside it.
#pragma once

#include <string_view>

namespace cairn {

[[nodiscard]] std::string_view dashboard_html();
[[nodiscard]] std::string_view dashboard_css();
[[nodiscard]] std::string_view dashboard_js();
[[nodiscard]] std::string_view openapi_json();

}  // namespace cairn
