#include "cairn/layout/kv_shape.h"

#include <limits>
#include <string>
#include <string_view>

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

// More than any model has. Layouts allocate for each layer, so a wrong number must not ask for all memory.
constexpr std::uint32_t kMostLayers = 1U << 16U;
constexpr std::uint64_t kMostWords = std::uint64_t{1} << 32U;

}  // namespace

Status KvShape::validate() const {
  const struct {
    std::string_view name;
    std::uint32_t value;
  } numbers[] = {{"layers", layers}, {"kv", kv}, {"page_size", page_size}, {"heads", heads}, {"head_size", head_size}};
  for (const auto& number : numbers) {
    if (number.value == 0) {
      return fail(ErrorCode::kInvalidArgument, str_cat("a block of ", number.name, " 0 has no bytes; give at least 1"));
    }
  }
  if (layers > kMostLayers) {
    return fail(ErrorCode::kOutOfRange, str_cat("a shape of ", layers, " layers; it can have at most ", kMostLayers));
  }
  if (kv > 2) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("kv is ", kv, "; give 2 for keys and values, 1 for one tensor (MLA)"));
  }
  if (element_bits < 4 || element_bits > 64) {
    return fail(ErrorCode::kInvalidArgument, str_cat("elements of ", element_bits, " bits; give 4 to 64"));
  }
  if (std::uint64_t{head_size} * element_bits % 8 != 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a head of ", head_size, " elements of ", element_bits,
                                                     " bits does not end with a byte; pad head_size"));
  }
  // Positions of words are counted in 32 bits by the checksum. The limit also keeps all the products above in range.
  std::uint64_t words = (row_bytes() + 7) / 8;
  for (const std::uint64_t count : {layers, kv, page_size, heads}) {
    if (words > kMostWords / count) {
      return fail(ErrorCode::kOutOfRange,
                  str_cat("a block of ", layers, " layers x ", kv, " x ", page_size, " tokens x ", heads, " heads x ",
                          row_bytes(), " bytes has more than 2^32 words of 8 bytes; take fewer tokens a block"));
    }
    words *= count;
  }
  return {};
}

}  // namespace cairn
