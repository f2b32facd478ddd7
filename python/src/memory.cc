// Block memory without copies: BlockMemory, the tiers of a manager, and Array, a part of one, which numpy, torch, cupy and jax
// read and write in place.
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/layout/block_layout.h"
#include "python/src/managers.h"

namespace cairn::python {

using namespace nb::literals;  // NOLINT(google-build-using-namespace): "name"_a

namespace {

// An element as arrays name it. numpy has no bf16 and no fp8: it sees their bits as unsigned numbers. Two elements of 4 bits are
// one byte.
struct ElementType {
  std::string name;     // of the configuration: "bf16"
  std::string typestr;  // of numpy: "<f2"
  nb::dlpack::dtype dlpack;
  std::uint32_t bytes = 1;
  std::uint32_t per_byte = 1;  // elements in a byte, if they are smaller
};

ElementType element_type(const std::string& name) {
  using Code = nb::dlpack::dtype_code;
  const auto dtype = [](Code code, std::uint8_t bits) {
    return nb::dlpack::dtype{static_cast<std::uint8_t>(code), bits, 1};
  };
  if (name == "f32") {
    return {name, "<f4", dtype(Code::Float, 32), 4};
  }
  if (name == "f16") {
    return {name, "<f2", dtype(Code::Float, 16), 2};
  }
  if (name == "bf16") {
    return {name, "<u2", dtype(Code::Bfloat, 16), 2};
  }
  if (name == "fp8_e4m3") {
    return {name, "|u1", dtype(Code::Float8_E4M3FN, 8), 1};
  }
  if (name == "fp8_e5m2") {
    return {name, "|u1", dtype(Code::Float8_E5M2, 8), 1};
  }
  if (name == "int8") {
    return {name, "|i1", dtype(Code::Int, 8), 1};
  }
  return {name, "|u1", dtype(Code::UInt, 8), 1, name == "uint8" ? 1U : 2U};
}

// A dimension of an array: how many, and how many bytes apart.
struct Dimension {
  std::uint64_t size;
  std::uint64_t step;
};

// cairn.Array. Holds the layout, and so the memory.
class Array {
 public:
  Array(BlockLayoutPtr layout, ElementType element, std::byte* data, std::vector<Dimension> dimensions)
      : layout_(std::move(layout)), element_(std::move(element)), data_(data), dimensions_(std::move(dimensions)) {}

  [[nodiscard]] bool is_host() const { return layout_.get()->regions().front()->is_host(); }
  [[nodiscard]] int device() const { return layout_.get()->device(); }
  [[nodiscard]] const ElementType& element() const { return element_; }
  [[nodiscard]] nb::tuple shape() const { return tuple_of(&Dimension::size); }
  [[nodiscard]] nb::tuple strides() const { return tuple_of(&Dimension::step); }
  [[nodiscard]] std::uintptr_t pointer() const {
    static_cast<void>(layout_.get());
    return reinterpret_cast<std::uintptr_t>(data_);
  }

  // What __array_interface__ and __cuda_array_interface__ have in common.
  [[nodiscard]] nb::dict interface() const {
    nb::dict all;
    all["version"] = 3;
    all["shape"] = shape();
    all["strides"] = strides();
    all["typestr"] = element_.typestr;
    all["data"] = nb::make_tuple(pointer(), false);
    return all;
  }
  // An object of nanobind's with the exact element type, which knows DLPack. `self` keeps the memory.
  [[nodiscard]] nb::object dlpack(nb::handle self) const {
    std::vector<std::size_t> sizes;
    std::vector<std::int64_t> steps;
    for (const Dimension& dimension : dimensions_) {
      sizes.push_back(dimension.size);
      steps.push_back(static_cast<std::int64_t>(dimension.step / element_.bytes));
    }
    const int kind = is_host() ? nb::device::cpu::value : nb::device::cuda::value;
    nb::ndarray<nb::array_api> made(reinterpret_cast<void*>(pointer()), sizes.size(), sizes.data(), self, steps.data(),
                                    element_.dlpack, kind, is_host() ? 0 : device());
    return nb::cast(made);
  }

 private:
  [[nodiscard]] nb::tuple tuple_of(std::uint64_t Dimension::* member) const {
    nb::list all;
    for (const Dimension& dimension : dimensions_) {
      all.append(dimension.*member);
    }
    return nb::tuple(all);
  }

  OfProcess<BlockLayoutPtr> layout_;
  ElementType element_;
  std::byte* data_;
  std::vector<Dimension> dimensions_;
};

// cairn.BlockMemory.
class BlockMemory {
 public:
  BlockMemory(CacheLevel level, BlockLayoutPtr layout, const std::string& element)
      : level_(level), layout_(std::move(layout)), element_(element_type(element)) {}

  [[nodiscard]] const BlockLayout& layout() const { return *layout_.get(); }
  [[nodiscard]] CacheLevel level() const { return level_; }
  [[nodiscard]] const ElementType& element() const { return element_; }

  // All blocks of a layer: [block, K/V, token, head, element].
  [[nodiscard]] Array layer(std::uint32_t index) const {
    check_index("layer", index, layout().shape().layers);
    const LayerPlace& place = layout().layers()[index];
    return array(place.region, place.offset, {{layout().blocks(), place.block_step}}, place);
  }
  // One block: [layer, K/V, token, head, element].
  [[nodiscard]] Array block(std::uint32_t index) const {
    check_index("block", index, layout().blocks());
    const LayerPlace& first = layout().layers().front();
    return array(first.region, first.offset + index * first.block_step, {{layout().shape().layers, layer_step()}},
                 first);
  }
  // All blocks: [block, layer, K/V, token, head, element].
  [[nodiscard]] Array all() const {
    const LayerPlace& first = layout().layers().front();
    return array(first.region, first.offset,
                 {{layout().blocks(), first.block_step}, {layout().shape().layers, layer_step()}}, first);
  }

 private:
  static void check_index(const char* what, std::uint32_t index, std::uint32_t count) {
    if (index >= count) {
      raise(ErrorCode::kOutOfRange,
            str_cat(what, " ", index, " is out of range; there are ", count, ", counted from 0"));
    }
  }
  // Raises if the layers are not equally far apart in one piece of memory.
  [[nodiscard]] std::uint64_t layer_step() const {
    const std::span<const LayerPlace> layers = layout().layers();
    const std::uint64_t step = layers.size() == 1 ? layers[0].block_step : layers[1].offset - layers[0].offset;
    for (std::size_t i = 1; i < layers.size(); ++i) {
      LayerPlace expected = layers[0];
      expected.offset += i * step;
      if (layers[i] != expected) {
        raise(ErrorCode::kFailedPrecondition,
              "the layers of a block are in separate pieces of memory; use layer(i) and index the block there, or "
              "configure device.layout contiguous-nhd");
      }
    }
    return step;
  }
  [[nodiscard]] Array array(std::uint32_t region, std::uint64_t offset, std::vector<Dimension> outer,
                            const LayerPlace& place) const {
    const KvShape& shape = layout().shape();
    outer.push_back({shape.kv, place.kv_step});
    outer.push_back({shape.page_size, place.token_step});
    outer.push_back({shape.heads, place.head_step});
    outer.push_back({shape.head_size / element_.per_byte, element_.bytes});
    return Array(layout_.get(), element_, layout().regions()[region]->base() + offset, std::move(outer));
  }

  CacheLevel level_;
  OfProcess<BlockLayoutPtr> layout_;
  ElementType element_;
};

BlockMemory memory_of(const Manager& manager, const std::string& tier) {
  const ManagerPtr owner = manager.use();
  const CacheLevel level = level_of(tier);
  BlockLayoutPtr layout = owner->manager.layout(level);
  if (layout == nullptr) {
    raise(ErrorCode::kNotFound, str_cat("the manager has no tier ", name_of(level), "; configure its size"));
  }
  if (layout->regions().front()->base() == nullptr) {
    raise(ErrorCode::kFailedPrecondition,
          str_cat("blocks of the ", name_of(level), " tier have no address: they are in a file or in other processes"));
  }
  return {level, std::move(layout), owner->manager.config().model.element_type};
}

}  // namespace

void bind_memory(nb::module_& module) {
  nb::class_<Array>(
      module, "Array",
      R"(Block memory as an array: numpy.asarray(), torch.from_dlpack(), cupy.asarray() and jax share it, without a copy.

The memory lives as long as an array refers to it. What is in it is only yours while you hold the blocks: the pool gives
blocks that nobody holds to others. numpy has no bf16, fp8 and 4-bit types: it sees their bits as unsigned numbers; DLPack
carries the exact type of all but 4-bit elements, two of which are one byte.)")
      .def_prop_ro("shape", &Array::shape, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("strides", &Array::strides, nb::sig("def strides(self) -> tuple[int, ...]"), "In bytes.")
      .def_prop_ro(
          "element_type", [](const Array& self) { return self.element().name; },
          "As the configuration names it: bf16, fp8_e4m3 and so on.")
      .def_prop_ro("pointer", &Array::pointer, "The address of the first element.")
      .def_prop_ro(
          "device",
          [](const Array& self) { return self.is_host() ? std::string("cpu") : str_cat("cuda:", self.device()); })
      .def(
          "numpy",
          [](nb::handle self) {
            if (!nb::cast<const Array&>(self).is_host()) {  // numpy would make an array of one object
              raise(ErrorCode::kFailedPrecondition,
                    "the memory is a GPU's, which numpy cannot read; use torch.from_dlpack() or cupy.asarray()");
            }
            return nb::module_::import_("numpy").attr("asarray")(self);
          },
          nb::sig("def numpy(self) -> numpy.typing.NDArray[typing.Any]"),
          "A numpy array over the same memory. Host memory only.")
      .def_prop_ro(
          "__array_interface__",
          [](const Array& self) {
            if (!self.is_host()) {
              throw nb::attribute_error("the memory is a GPU's; use DLPack or __cuda_array_interface__");
            }
            return self.interface();
          },
          nb::sig("def __array_interface__(self) -> dict[str, typing.Any]"))
      .def_prop_ro(
          "__cuda_array_interface__",
          [](const Array& self) {
            if (self.is_host()) {
              throw nb::attribute_error("the memory is the host's; use DLPack or numpy");
            }
            return self.interface();
          },
          nb::sig("def __cuda_array_interface__(self) -> dict[str, typing.Any]"))
      .def(
          "__dlpack__",
          [](nb::handle self, const nb::kwargs& keys) {
            return nb::cast<const Array&>(self).dlpack(self).attr("__dlpack__")(**keys);
          },
          nb::sig("def __dlpack__(self, **keys: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__",
          [](nb::handle self) { return nb::cast<const Array&>(self).dlpack(self).attr("__dlpack_device__")(); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__repr__", [](const Array& self) {
        return str_cat("<cairn.Array ", nb::cast<std::string>(nb::repr(self.shape())), " ", self.element().name, ">");
      });

  nb::class_<BlockMemory>(module, "BlockMemory", "The memory of a tier's blocks, by layer or by block.")
      .def_prop_ro("tier", [](const BlockMemory& self) { return to_string(self.level()); })
      .def_prop_ro("blocks", [](const BlockMemory& self) { return self.layout().blocks(); })
      .def_prop_ro("layers", [](const BlockMemory& self) { return self.layout().shape().layers; })
      .def_prop_ro("block_bytes", [](const BlockMemory& self) { return self.layout().shape().block_bytes(); })
      .def_prop_ro("element_type", [](const BlockMemory& self) { return self.element().name; })
      .def("layer", &BlockMemory::layer, "index"_a, "All blocks of a layer: [block, K/V, token, head, element].")
      .def("block", &BlockMemory::block, "block_id"_a,
           "One block: [layer, K/V, token, head, element]. Raises if the layers are in separate pieces of memory.")
      .def("array", &BlockMemory::all, "All blocks: [block, layer, K/V, token, head, element]. Raises as block() does.")
      .def("__repr__", [](const BlockMemory& self) {
        return str_cat("<cairn.BlockMemory ", name_of(self.level()), ": ", self.layout().blocks(), " blocks of ",
                       self.layout().shape().block_bytes(), " bytes, ", self.element().name, ">");
      });

  auto manager = nb::borrow<nb::class_<Manager>>(module.attr("Manager"));
  manager.def("memory", &memory_of, "tier"_a = "device", "The memory of a tier's blocks, to fill and read them.");
}

}  // namespace cairn::python
