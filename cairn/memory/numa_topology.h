// NumaTopology: which memory nodes the machine has, and which of them a device on the PCI bus is next to.
//
// Does:     reads the files the kernel shows under /sys, below a folder that is handed in: tests make machines of their
//           own.
// Threads:  a plain value; reading takes some files of /sys.
// Fails:    never: where the kernel says nothing the machine has one node, and a device is next to none in particular.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cairn {

class NumaTopology {
 public:
  // Of the machine whose /proc and /sys lie in `machine_root`; the one this runs on is "".
  [[nodiscard]] static NumaTopology read(const std::string& machine_root);

  // Those with memory, in order; at least one.
  [[nodiscard]] const std::vector<int>& nodes() const { return nodes_; }
  [[nodiscard]] bool has_node(int node) const;
  // Placing memory matters.
  [[nodiscard]] bool has_several() const { return nodes_.size() > 1; }

  // The node next to a device such as "0000:1B:00.0"; none where the kernel does not know.
  [[nodiscard]] std::optional<int> node_of_pci_device(std::string_view pci_id) const;

 private:
  explicit NumaTopology(std::string machine_root) : machine_root_(std::move(machine_root)) {}

  std::string machine_root_;
  std::vector<int> nodes_;
};

// A kernel list such as "0-2,5": 0, 1, 2, 5. Nothing where it is no such list.
[[nodiscard]] std::optional<std::vector<int>> parse_node_list(std::string_view text);

}  // namespace cairn
