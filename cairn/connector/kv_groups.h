// kv_groups: the tensors that an engine registers, as the groups of layouts that a rank has.
//
// Does:     finds for each group whether it has a tensor for each layer, two for each (K before V), or one for all, and
//           gives the layers their numbers in the order of the model.
// Owner:    the memory stays the engine's, and outlives what is made of it.
// Threads:  pure.
// Fails:    groups without layers, tensors that do not fit the number of layers, pages of another size than the group
//           says, groups with other numbers of blocks, layers that are in no group or in two; and all that TensorView
//           and BlockLayout refuse. Says which group, which layer and what is wrong with it.
#pragma once

#include <span>
#include <string>

#include "cairn/base/result.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/layout/layer_groups.h"

namespace cairn {

// `layers`: the names of all layers, in the order in which the model computes them.
[[nodiscard]] Result<LayoutGroups> make_kv_groups(std::span<const KvGroup> groups, std::span<const std::string> layers);

}  // namespace cairn
