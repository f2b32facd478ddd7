#include "cairn/layout/block_layout.h"

#include <array>
#include <limits>
#include <optional>
#include <string>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

constexpr std::size_t kAxes = 7;
constexpr std::uint64_t kMostIndices = std::numeric_limits<std::uint32_t>::max();

// An axis in bytes, and how often it was named.
struct Axis {
  std::uint64_t count = 1;
  std::uint64_t step = 0;
  bool given = false;
};
using Axes = std::array<Axis, kAxes>;

Axis& axis_of(Axes& axes, TensorAxis axis) { return axes[static_cast<std::size_t>(axis)]; }

// Reads one tensor; errors name the tensor by its number.
class TensorReader {
 public:
  TensorReader(const TensorView& tensor, const TensorOptions& options, std::size_t number)
      : tensor_(tensor), options_(options), number_(number) {}

  Result<TensorPlaces> read() {
    CAIRN_TRY(read_dimensions());
    CAIRN_TRY(split_flat_tokens());
    const auto count = [&](TensorAxis axis) { return static_cast<std::uint32_t>(axis_of(axes_, axis).count); };
    const auto step = [&](TensorAxis axis) { return axis_of(axes_, axis).step; };
    TensorPlaces places;
    places.blocks = count(TensorAxis::kBlock);
    places.shape = {count(TensorAxis::kLayer), count(TensorAxis::kKv),      count(TensorAxis::kToken),
                    count(TensorAxis::kHead),  count(TensorAxis::kElement), options_.element_bits};
    if (Status valid = places.shape.validate(); !valid) {
      return refuse(valid.error().code, valid.error().message);
    }
    const std::uint64_t last_layer = places.shape.layers - 1;
    std::uint64_t end = 0;
    if (__builtin_mul_overflow(last_layer, step(TensorAxis::kLayer), &end) ||
        __builtin_add_overflow(end, tensor_.offset, &end)) {
      return refuse(ErrorCode::kOutOfRange, str_cat("layer ", last_layer, " at a stride of ", step(TensorAxis::kLayer),
                                                    " bytes begins beyond 2^64"));
    }
    for (std::uint64_t layer = 0; layer <= last_layer; ++layer) {
      places.layers.push_back({tensor_.region, tensor_.offset + layer * step(TensorAxis::kLayer),
                               step(TensorAxis::kBlock), step(TensorAxis::kKv), step(TensorAxis::kToken),
                               step(TensorAxis::kHead)});
    }
    return places;
  }

 private:
  [[nodiscard]] Unexpected<Error> refuse(ErrorCode code, std::string_view message) const {
    return fail(code, str_cat("tensor ", number_, ": ", message));
  }

  Status read_dimensions() {
    // From the innermost axis outwards, because the elements of a head must be contiguous.
    for (std::size_t i = tensor_.dimensions.size(); i-- > 0;) {
      const TensorDimension& dimension = tensor_.dimensions[i];
      const std::string name = str_cat("axis ", i, " (", to_string(dimension.axis), ")");
      if (dimension.size == 0 || dimension.size > kMostIndices) {
        return refuse(ErrorCode::kOutOfRange, str_cat(name, " has the size ", dimension.size, "; 1 to 2^32 - 1"));
      }
      if (dimension.stride < 0 && dimension.size > 1) {
        return refuse(ErrorCode::kInvalidArgument,
                      str_cat(name, " has the stride ", dimension.stride, "; tensors that run backwards are not read"));
      }
      Status good =
          dimension.axis == TensorAxis::kElement ? read_elements(dimension, name) : read_steps(dimension, name);
      if (!good) {
        return good;
      }
    }
    if (!axis_of(axes_, TensorAxis::kElement).given) {
      return refuse(ErrorCode::kInvalidArgument, "the tensor has no kElement axis; name the innermost axis kElement");
    }
    if (axis_of(axes_, TensorAxis::kFlatToken).given) {
      if (axis_of(axes_, TensorAxis::kBlock).given || axis_of(axes_, TensorAxis::kToken).given) {
        return refuse(ErrorCode::kInvalidArgument, "kFlatToken replaces kBlock and kToken; give one or the other");
      }
    } else if (!axis_of(axes_, TensorAxis::kBlock).given) {
      return refuse(ErrorCode::kInvalidArgument, "the tensor has neither a kBlock nor a kFlatToken axis");
    }
    return {};
  }

  Status read_elements(const TensorDimension& dimension, const std::string& name) {
    Axis& elements = axis_of(axes_, TensorAxis::kElement);
    elements.given = true;
    if (dimension.size == 1) {
      return {};
    }
    if (static_cast<std::uint64_t>(dimension.stride) != elements.count) {
      return refuse(ErrorCode::kInvalidArgument,
                    str_cat(name, " has the stride ", dimension.stride, ", not ", elements.count,
                            "; the elements of a head are contiguous in a layout"));
    }
    elements.count *= dimension.size;  // both below 2^32
    if (elements.count > kMostIndices) {
      return refuse(ErrorCode::kOutOfRange,
                    str_cat(name, ": a head has ", elements.count, " elements; the maximum is 2^32 - 1"));
    }
    return {};
  }

  Status read_steps(const TensorDimension& dimension, const std::string& name) {
    Axis& axis = axis_of(axes_, dimension.axis);
    if (axis.given) {
      return refuse(ErrorCode::kInvalidArgument, str_cat(name, " is named twice"));
    }
    axis = {dimension.size, 0, true};
    if (dimension.size == 1) {
      return {};
    }
    std::uint64_t bits = 0;
    if (__builtin_mul_overflow(static_cast<std::uint64_t>(dimension.stride), std::uint64_t{options_.element_bits},
                               &bits)) {
      return refuse(ErrorCode::kOutOfRange, str_cat(name, " has the stride ", dimension.stride, ", beyond 2^64 bits"));
    }
    if (bits % 8 != 0) {
      return refuse(ErrorCode::kInvalidArgument, str_cat(name, " has a stride of ", dimension.stride, " elements of ",
                                                         options_.element_bits, " bits, which is not whole bytes"));
    }
    axis.step = bits / 8;
    return {};
  }

  // Tokens are blocks of `page_size` tokens.
  Status split_flat_tokens() {
    const Axis tokens = axis_of(axes_, TensorAxis::kFlatToken);
    if (!tokens.given) {
      return {};
    }
    if (options_.page_size == 0 || tokens.count % options_.page_size != 0) {
      return refuse(ErrorCode::kInvalidArgument, str_cat(tokens.count, " tokens are not a multiple of page_size ",
                                                         options_.page_size, "; give the tokens of a block"));
    }
    axis_of(axes_, TensorAxis::kToken) = {options_.page_size, tokens.step, true};
    std::uint64_t block_step = 0;
    if (__builtin_mul_overflow(tokens.step, std::uint64_t{options_.page_size}, &block_step)) {
      return refuse(ErrorCode::kOutOfRange,
                    str_cat("blocks of ", options_.page_size, " tokens of ", tokens.step, " bytes go beyond 2^64"));
    }
    axis_of(axes_, TensorAxis::kBlock) = {tokens.count / options_.page_size, block_step, true};
    return {};
  }

  const TensorView& tensor_;
  const TensorOptions& options_;
  const std::size_t number_;
  Axes axes_ = {};
};

}  // namespace

std::string_view to_string(TensorAxis axis) {
  constexpr std::string_view kNames[kAxes] = {"block", "layer", "kv", "token", "flat_token", "head", "element"};
  return kNames[static_cast<std::size_t>(axis)];
}

Result<TensorView> make_tensor_view(std::span<const TensorAxis> axes, std::span<const std::uint64_t> sizes,
                                    std::span<const std::int64_t> strides) {
  if (axes.size() != sizes.size() || axes.size() != strides.size()) {
    return fail(ErrorCode::kInvalidArgument, str_cat(axes.size(), " axes, ", sizes.size(), " sizes and ",
                                                     strides.size(), " strides; give one of each for every axis"));
  }
  TensorView view;
  for (std::size_t i = 0; i < axes.size(); ++i) {
    view.dimensions.push_back({axes[i], sizes[i], strides[i]});
  }
  return view;
}

Result<TensorPlaces> places_of(std::span<const TensorView> tensors, const TensorOptions& options) {
  std::optional<TensorPlaces> all;
  std::uint64_t layers = 0;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Result<TensorPlaces> read = TensorReader(tensors[i], options, i).read();
    if (!read) {
      return read;
    }
    layers += read->shape.layers;
    if (!all) {
      all = *std::move(read);
      continue;
    }
    KvShape same = read->shape;
    same.layers = all->shape.layers;
    if (same != all->shape || read->blocks != all->blocks) {
      const auto name = [](const TensorPlaces& places) {
        const KvShape& shape = places.shape;
        return str_cat(places.blocks, " blocks of kv ", shape.kv, " x ", shape.page_size, " tokens x ", shape.heads,
                       " heads x ", shape.head_size, " elements");
      };
      return fail(ErrorCode::kInvalidArgument, str_cat("tensor ", i, " has ", name(*read), " and tensor 0 has ",
                                                       name(*all), "; tensors that differ are groups of their own"));
    }
    all->layers.insert(all->layers.end(), read->layers.begin(), read->layers.end());
  }
  if (!all) {
    return fail(ErrorCode::kInvalidArgument, "no tensors given; pass the tensors of every layer");
  }
  if (layers > kMostIndices) {
    return fail(ErrorCode::kOutOfRange, str_cat(layers, " layers; give fewer than 2^32"));
  }
  all->shape.layers = static_cast<std::uint32_t>(layers);
  CAIRN_TRY(all->shape.validate());
  return *std::move(all);
}

}  // namespace cairn
