#include "cairn/tokens/seed_lineage_hash.h"

#include "cairn/base/str_cat.h"

namespace cairn {
namespace {

constexpr std::uint64_t low_bits(std::uint32_t count) { return (std::uint64_t{1} << count) - 1; }
constexpr std::uint32_t mode_of(std::uint32_t position) {
  return position < (1U << 8) ? 0 : position < (1U << 16) ? 1 : 2;
}
constexpr std::uint32_t fragment_bits(std::uint32_t mode) { return 59 - 4 * mode; }
// Of the parent fragment, what stands in the high word beside mode and position.
constexpr std::uint32_t high_fragment_bits(std::uint32_t mode) { return 2 * fragment_bits(mode) - 64; }

}  // namespace

Result<SeedLineageHash> SeedLineageHash::make(std::uint64_t position, SequenceHash current,
                                              std::optional<SequenceHash> parent) {
  if (position > kMaxPosition) {
    return fail(ErrorCode::kOutOfRange, str_cat("block position ", position, " is beyond ", kMaxPosition,
                                                ", the last one a lineage hash can hold; use larger blocks"));
  }
  const auto place = static_cast<std::uint32_t>(position);
  const std::uint32_t mode = mode_of(place);
  const std::uint32_t bits = fragment_bits(mode);
  const std::uint64_t parent_bits = parent ? value_of(*parent) & low_bits(bits) : 0;
  const std::uint64_t current_bits = value_of(current) & low_bits(fragment_bits(mode_of(place + 1)));
  return SeedLineageHash(
      (std::uint64_t{mode} << 62) | (position << high_fragment_bits(mode)) | (parent_bits >> (64 - bits)),
      (parent_bits << bits) | current_bits);
}

std::uint32_t SeedLineageHash::position() const {
  return static_cast<std::uint32_t>((hi_ & low_bits(62)) >> high_fragment_bits(static_cast<std::uint32_t>(hi_ >> 62)));
}

std::uint64_t SeedLineageHash::current_fragment() const {
  return lo_ & low_bits(fragment_bits(static_cast<std::uint32_t>(hi_ >> 62)));
}

std::uint64_t SeedLineageHash::parent_fragment() const {
  const auto mode = static_cast<std::uint32_t>(hi_ >> 62);
  const std::uint32_t bits = fragment_bits(mode);
  return ((hi_ & low_bits(high_fragment_bits(mode))) << (64 - bits)) | (lo_ >> bits);
}

bool SeedLineageHash::is_parent_of(const SeedLineageHash& child) const {
  return child.position() == position() + 1 && child.parent_fragment() == current_fragment();
}

}  // namespace cairn
