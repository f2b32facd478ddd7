// For tests of the worker's side: tensors such as engines have, in heap memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/connector/worker_connector.h"

namespace cairn::testing {

// The strides of a tensor as it is allocated: without gaps, in the order of its sizes.
inline std::vector<std::int64_t> dense_strides(const std::vector<std::uint64_t>& sizes) {
  std::vector<std::int64_t> strides(sizes.size());
  std::int64_t next = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = next;
    next *= static_cast<std::int64_t>(sizes[i]);
  }
  return strides;
}

// An engine's tensors, and the memory that they lie in.
class EngineTensors {
 public:
  static constexpr std::uint32_t kElementBytes = 2;

  // A dense tensor of 16-bit elements.
  KvTensor add(std::vector<TensorAxis> axes, std::vector<std::uint64_t> sizes) {
    std::uint64_t bytes = kElementBytes;
    for (const std::uint64_t size : sizes) {
      bytes *= size;
    }
    memory_.push_back(std::make_unique<std::byte[]>(bytes));
    std::vector<std::int64_t> strides = dense_strides(sizes);
    return {memory_.back().get(), bytes, MemoryKind::kSystem, kNoDevice, std::move(axes), std::move(sizes),
            std::move(strides)};
  }

 private:
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

inline std::vector<std::string> layer_names(std::uint32_t layers, std::uint32_t first = 0) {
  std::vector<std::string> names;
  for (std::uint32_t i = 0; i < layers; ++i) {
    names.push_back(str_cat("layer.", first + i));
  }
  return names;
}

// As engines lay their KV out: layout/block_layout.h names them.
enum class TensorKind : std::uint8_t {
  kKvFirst,     // [2, blocks, page, heads, size]
  kBlockFirst,  // [blocks, 2, page, heads, size]
  kHnd,         // the sizes of kKvFirst over the memory of [2, blocks, heads, page, size]
  kAllInOne,    // [blocks, layers, 2, page, heads, size]
  kViewsOfOne,  // a tensor a layer, all of them views of the memory of kAllInOne
  kKAndVApart,  // [slots, heads, size], two a layer
  kMla,         // [blocks, page, inner]
};
inline constexpr TensorKind kAllTensorKinds[] = {
    TensorKind::kKvFirst,    TensorKind::kBlockFirst, TensorKind::kHnd, TensorKind::kAllInOne,
    TensorKind::kViewsOfOne, TensorKind::kKAndVApart, TensorKind::kMla};

struct EngineShape {
  std::uint32_t layers = 3;
  std::uint32_t blocks = 8;
  std::uint32_t page = 4;
  std::uint32_t heads = 2;
  std::uint32_t size = 8;
};

inline std::vector<KvTensor> engine_tensors(EngineTensors& memory, TensorKind kind, const EngineShape& s) {
  using enum TensorAxis;
  std::vector<KvTensor> tensors;
  if (kind == TensorKind::kAllInOne || kind == TensorKind::kViewsOfOne) {
    KvTensor all =
        memory.add({kBlock, kLayer, kKv, kToken, kHead, kElement}, {s.blocks, s.layers, 2, s.page, s.heads, s.size});
    if (kind == TensorKind::kAllInOne) {
      return {all};
    }
    const std::uint64_t layer_bytes = static_cast<std::uint64_t>(all.strides[1]) * EngineTensors::kElementBytes;
    for (std::uint32_t i = 0; i < s.layers; ++i) {
      KvTensor view = all;
      view.base = static_cast<std::byte*>(all.base) + i * layer_bytes;
      view.bytes = all.bytes - i * layer_bytes;
      view.axes.erase(view.axes.begin() + 1);
      view.sizes.erase(view.sizes.begin() + 1);
      view.strides.erase(view.strides.begin() + 1);
      tensors.push_back(view);
    }
    return tensors;
  }
  for (std::uint32_t i = 0; i < s.layers; ++i) {
    switch (kind) {
      case TensorKind::kKvFirst:
        tensors.push_back(memory.add({kKv, kBlock, kToken, kHead, kElement}, {2, s.blocks, s.page, s.heads, s.size}));
        break;
      case TensorKind::kBlockFirst:
        tensors.push_back(memory.add({kBlock, kKv, kToken, kHead, kElement}, {s.blocks, 2, s.page, s.heads, s.size}));
        break;
      case TensorKind::kHnd: {
        KvTensor tensor = memory.add({kKv, kBlock, kHead, kToken, kElement}, {2, s.blocks, s.heads, s.page, s.size});
        tensor.axes = {kKv, kBlock, kToken, kHead, kElement};
        std::swap(tensor.sizes[2], tensor.sizes[3]);
        std::swap(tensor.strides[2], tensor.strides[3]);
        tensors.push_back(tensor);
        break;
      }
      case TensorKind::kKAndVApart:
        tensors.push_back(memory.add({kFlatToken, kHead, kElement}, {s.blocks * s.page, s.heads, s.size}));
        tensors.push_back(memory.add({kFlatToken, kHead, kElement}, {s.blocks * s.page, s.heads, s.size}));
        break;
      case TensorKind::kMla:
        tensors.push_back(memory.add({kBlock, kToken, kElement}, {s.blocks, s.page, s.heads * s.size}));
        break;
      case TensorKind::kAllInOne:
      case TensorKind::kViewsOfOne:
        break;
    }
  }
  return tensors;
}

inline KvGroup engine_group(EngineTensors& memory, TensorKind kind, const EngineShape& s, std::string name = "full",
                            std::uint32_t first_layer = 0) {
  return {.name = std::move(name),
          .layers = layer_names(s.layers, first_layer),
          .tensors = engine_tensors(memory, kind, s),
          .element_bits = 16,
          .page_size = s.page};
}

}  // namespace cairn::testing
