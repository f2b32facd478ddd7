// Shared by the tests of disk tiers' files: a file with real blocks, and ways to damage it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_check.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/disk_format.h"

namespace cairn {

class DiskFileOfBlocks : public ::testing::Test {
 protected:
  // By default, rows that are not a whole number of words.
  static DiskGeometry geometry(std::uint32_t blocks, std::uint64_t row_bytes = 100) {
    return {.space = {.tenant = "t",
                      .model = "m",
                      .weights_generation = 3,
                      .layout = "contiguous-nhd",
                      .element_type = "bf16",
                      .shard = "tp0/2",
                      .block_size = 16},
            .block_bytes = row_bytes * 50,
            .row_bytes = row_bytes,
            .blocks = blocks};
  }
  // A sequence of four blocks after the other.
  static BlockKey key(std::uint64_t number) {
    const auto position = static_cast<std::uint32_t>(number % 4);
    return BlockKey::make_checked(position, SequenceHash{1000 + number},
                                  SequenceHash{position == 0 ? 0 : 999 + number});
  }
  static std::vector<std::byte> block(const DiskGeometry& geometry, std::uint64_t number) {
    std::mt19937_64 random(number);
    std::vector<std::byte> bytes(geometry.block_bytes);
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(random());
    }
    return bytes;
  }
  // Writes the blocks of these numbers to these block ids, in this order.
  struct Placed {
    std::uint32_t block_id;
    std::uint64_t number;
  };
  void write(const DiskGeometry& geometry, const std::vector<Placed>& blocks) const {
    DiskFile file = *DiskFile::create(path_, geometry);
    for (const Placed& placed : blocks) {
      const std::vector<std::byte> bytes = block(geometry, placed.number);
      ASSERT_TRUE(file.write_blocks(BlockId{placed.block_id}, bytes));
      const Checksum checksum = checksum_of(geometry, geometry.space.id(), key(placed.number), bytes);
      ASSERT_TRUE(file.put(std::vector<DiskEntry>{{.block_id = BlockId{placed.block_id},
                                                   .key = key(placed.number),
                                                   .checksum = checksum,
                                                   .tokens_hash = BlockHash{9}}}));
    }
  }
  void flip_byte(std::uint64_t offset) const {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x10));
  }
  void damage_block(const DiskGeometry& geometry, std::uint32_t block_id) const {
    flip_byte(data_offset() + block_id * step_of(geometry) + geometry.block_bytes / 2);
  }
  void damage_entry(std::uint32_t block_id) const {
    flip_byte(disk::kEntriesOffset + block_id * disk::kEntryBytes + 20);
  }
  [[nodiscard]] std::string bytes_of_file() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  // Of the small files of tests.
  static std::uint64_t data_offset() { return std::uint64_t{2} << 20; }
  static std::uint64_t step_of(const DiskGeometry& geometry) {
    return (geometry.block_bytes + DiskFile::kAlignment - 1) / DiskFile::kAlignment * DiskFile::kAlignment;
  }

  const TestFolder folder_;
  const std::string path_ = folder_.in("blocks");
};

}  // namespace cairn
