// NumaTopology: which memory nodes the machine has, and which of them is nearest to a PCI device. Reads /sys.
//
// Thread safety: a plain value.
// Errors: none. If the kernel says nothing, the machine has one node and a device is near none in particular.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

class NumaTopology {
 public:
  // Reads below `machine_root`: "" for this machine, a folder of files in tests.
  [[nodiscard]] static NumaTopology read(const std::string& machine_root);

  // The nodes that have memory, in order; at least one.
  [[nodiscard]] const std::vector<int>& nodes() const { return nodes_; }
  [[nodiscard]] bool has_node(int node) const;
  // Whether it matters where memory is placed.
  [[nodiscard]] bool has_several() const { return nodes_.size() > 1; }

  // The node nearest to a device such as "0000:1B:00.0"; std::nullopt if the kernel does not know.
  [[nodiscard]] std::optional<int> node_of_pci_device(std::string_view pci_id) const;

 private:
  explicit NumaTopology(std::string machine_root) : machine_root_(std::move(machine_root)) {}

  std::string machine_root_;
  std::vector<int> nodes_;
};

// Parses a kernel list: "0-2,5" is 0, 1, 2, 5. std::nullopt if the text is not such a list.
[[nodiscard]] std::optional<std::vector<int>> parse_node_list(std::string_view text);

}  // namespace cairn
