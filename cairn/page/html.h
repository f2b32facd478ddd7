// HTML from text that may hold anything.
#pragma once

#include <string>
#include <string_view>

namespace cairn::page {

// For the content of an element and for a quoted attribute. Control characters, which HTML has no place for, and bytes
// that are not UTF-8 become U+FFFD: a page stays readable whatever a file is called.
[[nodiscard]] std::string escape(std::string_view text);

}  // namespace cairn::page
