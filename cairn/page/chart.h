// A chart as HTML: its drawing, legend and the table of its values.
#pragma once

#include <string>

#include "cairn/page/page.h"

namespace cairn::page {

// `id` is of this chart alone on its page, and can stand in an attribute as it is.
[[nodiscard]] std::string render_chart(const Chart& chart, const std::string& id);

}  // namespace cairn::page
