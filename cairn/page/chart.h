// Renders a chart as HTML: its drawing, its legend and a table of its values.
#pragma once

#include <string>

#include "cairn/page/page.h"

namespace cairn::page {

// `id` is unique on the page and needs no escaping in an attribute.
[[nodiscard]] std::string render_chart(const Chart& chart, const std::string& id);

}  // namespace cairn::page
