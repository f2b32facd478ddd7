#include "cairn/memory/numa_topology.h"

#include <algorithm>
#include <cstdint>

#include "cairn/base/str_cat.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/numa_pages.h"

namespace cairn {

std::optional<std::vector<int>> parse_node_list(std::string_view text) {
  std::vector<int> nodes;
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
    text.remove_suffix(1);
  }
  while (!text.empty()) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string_view range = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    const std::size_t dash = range.find('-');
    const std::optional<std::int64_t> first = parse_number(range.substr(0, dash));
    const std::optional<std::int64_t> last =
        dash == std::string_view::npos ? first : parse_number(range.substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last >= kMostNumaNodes) {
      return std::nullopt;
    }
    for (std::int64_t node = *first; node <= *last; ++node) {
      nodes.push_back(static_cast<int>(node));
    }
  }
  if (nodes.empty()) {
    return std::nullopt;
  }
  return nodes;
}

NumaTopology NumaTopology::read(const std::string& machine_root) {
  NumaTopology topology(machine_root);
  // Nodes without memory have only processors: nothing can be placed there.
  for (const char* const list : {"has_memory", "online"}) {
    const std::string text = read_text(str_cat(machine_root, "/sys/devices/system/node/", list)).value_or("");
    if (std::optional<std::vector<int>> nodes = parse_node_list(text)) {
      topology.nodes_ = *std::move(nodes);
      return topology;
    }
  }
  topology.nodes_.assign(1, 0);
  return topology;
}

bool NumaTopology::has_node(int node) const { return std::find(nodes_.begin(), nodes_.end(), node) != nodes_.end(); }

std::optional<int> NumaTopology::node_of_pci_device(std::string_view pci_id) const {
  // The driver writes hexadecimal digits in upper case, the kernel in lower case.
  std::string name(pci_id);
  std::transform(name.begin(), name.end(), name.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; });
  const std::int64_t node =
      read_number(str_cat(machine_root_, "/sys/bus/pci/devices/", name, "/numa_node")).value_or(kNoNumaNode);
  if (!has_node(static_cast<int>(node))) {
    return std::nullopt;
  }
  return static_cast<int>(node);
}

}  // namespace cairn
