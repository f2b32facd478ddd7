// make_kv_groups(): the tensors that an engine registers, as the groups of layouts that a rank has.
//
// Each group has a tensor for each layer, two for each (K before V), or one for all. Layers get their numbers in the order of
// the model.
//
// Thread safety: pure.
// Ownership: the memory stays the engine's, and outlives what is made of it.
// Errors: names the group, the layer and what is wrong: no layers, a number of tensors that does not fit the layers, another
// page size than the group says, groups with different numbers of blocks, layers in no group or in two, and what TensorView
// and BlockLayout refuse.
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
