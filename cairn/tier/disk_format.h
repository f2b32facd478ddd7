// The bytes of a disk tier's file: superblock and entries, little endian. Format 2; part of what is on users' disks.
//
//   0        superblock        4096 bytes
//   4096     its second copy   4096 bytes
//   8192     entries           64 bytes a block
//   then, at a multiple of 2 MiB: the blocks, each at a multiple of 4096
//
// Superblock: "CAIRNDSK"; format, clean, blocks, tokens a block, key scheme, bytes a row (4 bytes each); bytes a block,
// offset of the blocks, step from block to block, namespace, weights generation (8 bytes each); 1 if there is a key
// secret, else 0 (4 bytes), the secret or zeros (32 bytes); fence (8 bytes); tenant, model, layout, element type, shard,
// each with 2 bytes of length in front; zeros; in the last 8 bytes the checksum of all before.
// Of two whole superblocks the one with the higher fence counts.
// Entry: "CENT", block (4 bytes); key (16, most significant first); checksum of the block, order, namespace, tokens hash
// (8 each); the checksum of all before (8). A block that holds nothing has zeros, or an entry whose order is below the fence.
//
// Errors: decoding returns kCorrupt for anything that encoding cannot have written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "cairn/base/result.h"
#include "cairn/tier/disk_file.h"

namespace cairn::disk {

inline constexpr std::size_t kSuperblockBytes = 4096;
inline constexpr std::size_t kEntryBytes = 64;
inline constexpr std::uint64_t kEntriesOffset = 2 * kSuperblockBytes;

struct Superblock {
  DiskGeometry geometry;
  std::uint64_t fence = 0;  // entries with a lower order are void
  bool clean = false;
};

using SuperblockBytes = std::array<std::byte, kSuperblockBytes>;
using EntryBytes = std::array<std::byte, kEntryBytes>;

// Fails if the names of the namespace do not fit, or a file cannot be so large.
[[nodiscard]] Result<SuperblockBytes> encode(const Superblock& superblock);
[[nodiscard]] Result<Superblock> decode_superblock(std::span<const std::byte, kSuperblockBytes> bytes);

// Whether the bytes begin like a superblock of any format, damaged or not.
[[nodiscard]] bool begins_as_superblock(std::span<const std::byte> bytes);
// Whether the bytes are an undamaged entry, of any block and namespace.
[[nodiscard]] bool is_entry(std::span<const std::byte, kEntryBytes> bytes);

[[nodiscard]] EntryBytes encode(const DiskEntry& entry, NamespaceId space);
// What an entry must belong to.
struct EntryPlace {
  BlockId block_id = kNoBlock;
  NamespaceId space{};
  std::uint64_t fence = 0;
};
// std::nullopt if the block is empty. Also fails for an entry of another block or namespace, and for one without a checksum,
// because its block could not be verified.
[[nodiscard]] Result<std::optional<DiskEntry>> decode_entry(std::span<const std::byte, kEntryBytes> bytes,
                                                            const EntryPlace& place);

}  // namespace cairn::disk
