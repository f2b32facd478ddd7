// escape(): makes HTML from text of unknown origin.
#pragma once

#include <string>
#include <string_view>

namespace cairn::page {

// For the content of an element and for a quoted attribute. Control characters, which HTML does not allow, and bytes that
// are not UTF-8 become U+FFFD.
[[nodiscard]] std::string escape(std::string_view text);

}  // namespace cairn::page
