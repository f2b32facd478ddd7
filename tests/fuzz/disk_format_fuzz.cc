// The superblock and entries of a disk tier's file: bytes that decode encode to the same bytes, and values that can be
// encoded decode to the same values.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>

#include "cairn/base/check.h"
#include "cairn/tier/disk_format.h"
#include "cairn/transfer/checksum.h"

namespace {

// Reads values from the front of the input; zeros after its end.
class Input {
 public:
  explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}
  template <typename Number>
  Number number() {
    Number value{};
    const std::size_t count = std::min(sizeof(Number), bytes_.size());
    if (count > 0) {
      std::memcpy(&value, bytes_.data(), count);
      bytes_ = bytes_.subspan(count);
    }
    return value;
  }
  std::string text() {
    const std::size_t wanted = number<std::uint16_t>() % 1200;
    const std::size_t count = std::min(wanted, bytes_.size());
    std::string value(reinterpret_cast<const char*>(bytes_.data()), count);
    bytes_ = bytes_.subspan(count);
    return value;
  }

 private:
  std::span<const std::byte> bytes_;
};

template <std::size_t kBytes>
std::array<std::byte, kBytes> padded(std::span<const std::byte> bytes) {
  std::array<std::byte, kBytes> out{};
  std::copy_n(bytes.begin(), std::min(kBytes, bytes.size()), out.begin());
  return out;
}

// Adds the checksum that the decoder expects: a fuzzer cannot guess it, but an attacker can compute it.
cairn::disk::SuperblockBytes sealed(cairn::disk::SuperblockBytes bytes) {
  const std::span<const std::byte> content = std::span<const std::byte>(bytes).first(bytes.size() - 8);
  const auto seal = static_cast<std::uint64_t>(cairn::finish(cairn::sum_words(content, 0), content.size(), {}));
  for (std::size_t i = 0; i < 8; ++i) {
    bytes[content.size() + i] = static_cast<std::byte>(seal >> (8 * i));
  }
  return bytes;
}

// No offset that follows from a superblock may overflow: the last block must end within a possible file.
void check_places(const cairn::DiskGeometry& geometry) {
  __extension__ using Wide = unsigned __int128;
  const std::optional<cairn::DiskPlaces> places = geometry.places();
  CAIRN_CHECK(places.has_value(), "a superblock that decodes has valid offsets");
  const Wide end = Wide{places->data_offset} + Wide{places->block_step} * geometry.blocks;
  CAIRN_CHECK(end == places->file_bytes && end <= (Wide{1} << 63) - 1, "the last block ends at the end of the file");
  CAIRN_CHECK(places->data_offset >= cairn::disk::kEntriesOffset + Wide{geometry.blocks} * cairn::disk::kEntryBytes &&
                  places->block_step >= geometry.block_bytes,
              "the parts of a file do not overlap");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace cairn;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));

  const disk::SuperblockBytes as_given = padded<disk::kSuperblockBytes>(bytes);
  for (const disk::SuperblockBytes& crafted : {as_given, sealed(as_given)}) {
    if (const auto superblock = disk::decode_superblock(crafted)) {
      const auto again = disk::encode(*superblock);
      CAIRN_CHECK(again.has_value() && *again == crafted, "a superblock that decodes encodes to the same bytes");
      check_places(superblock->geometry);
    }
  }
  (void)disk::decode_entry(padded<disk::kEntryBytes>(bytes), {.block_id = BlockId{0}});

  Input input(bytes);
  disk::Superblock superblock;
  Namespace& space = superblock.geometry.space;
  space = {.tenant = input.text(), .model = input.text(), .weights_generation = input.number<std::uint64_t>()};
  space.layout = input.text();
  space.element_type = input.text();
  space.shard = input.text();
  space.block_size = input.number<std::uint32_t>();
  superblock.geometry.row_bytes = input.number<std::uint32_t>();
  superblock.geometry.block_bytes = superblock.geometry.row_bytes * input.number<std::uint32_t>();
  superblock.geometry.blocks = input.number<std::uint32_t>();
  superblock.clean = input.number<std::uint8_t>() % 2 == 1;
  if (const auto encoded = disk::encode(superblock)) {
    // The decoder may reject it, but must not read other values.
    if (const auto decoded = disk::decode_superblock(*encoded)) {
      check_places(decoded->geometry);
      CAIRN_CHECK(decoded->geometry.space.id() == space.id() && decoded->clean == superblock.clean &&
                      decoded->geometry.blocks == superblock.geometry.blocks,
                  "a superblock decodes to the same values");
    }
    disk::SuperblockBytes flipped = *encoded;
    flipped[input.number<std::uint16_t>() % flipped.size()] ^= std::byte{1};
    CAIRN_CHECK(!disk::decode_superblock(flipped).has_value(), "a flipped bit is detected");
  }

  const BlockId block_id{input.number<std::uint32_t>()};
  const DiskEntry entry{.block_id = block_id,
                        .key = BlockKey::make_checked(input.number<std::uint32_t>() % (BlockKey::kMaxPosition + 1),
                                                      SequenceHash{input.number<std::uint64_t>()},
                                                      SequenceHash{input.number<std::uint64_t>()}),
                        .checksum = Checksum{input.number<std::uint64_t>()},
                        .tokens_hash = BlockHash{input.number<std::uint64_t>()},
                        .order = input.number<std::uint64_t>()};
  disk::EntryBytes encoded = disk::encode(entry, space.id());
  const disk::EntryPlace place{.block_id = block_id, .space = space.id()};
  const auto decoded = disk::decode_entry(encoded, place);
  CAIRN_CHECK(decoded.has_value() == (entry.checksum != kNoChecksum), "an entry without a checksum does not decode");
  CAIRN_CHECK(!decoded.has_value() || *decoded == entry, "an entry decodes to the same values");
  encoded[input.number<std::uint16_t>() % encoded.size()] ^= std::byte{128};
  CAIRN_CHECK(!disk::decode_entry(encoded, place).has_value(), "a flipped bit is detected");
  return 0;
}
