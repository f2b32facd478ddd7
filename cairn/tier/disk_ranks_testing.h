// Shared by the tests of ranks' files: a leader's file and the files of its ranks, with blocks of known bytes.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/memory/memory_testing.h"
#include "cairn/tier/disk_rank_files.h"

namespace cairn {

class RankedDisk : public ::testing::Test {
 protected:
  [[nodiscard]] DiskGeometry leader_geometry() const {
    return {.space = {.tenant = "t",
                      .model = "m",
                      .weights_generation = 3,
                      .layout = str_cat("contiguous-nhd ", whole_.layers, "x", whole_.kv, "x", whole_.heads, "x", 12),
                      .element_type = "bf16",
                      .block_size = whole_.page_size},
            .blocks = blocks_,
            .keeps_secret = true,
            .secret = KeySecret(KeySecret::Bytes{std::byte{7}})};
  }
  static BlockKey key(std::uint64_t number) {
    return BlockKey::make_checked(0, SequenceHash{1000 + number}, SequenceHash{0});
  }
  [[nodiscard]] std::vector<std::byte> block(std::uint64_t number) const {
    std::mt19937_64 random(number);
    std::vector<std::byte> bytes(whole_.block_bytes());
    std::ranges::generate(bytes, [&] { return static_cast<std::byte>(random()); });
    return bytes;
  }
  // As a leader and the ranks of the grid would have written `count` blocks.
  void write(const RankGrid& grid, std::uint32_t count, const std::vector<std::uint32_t>& stage_layers = {}) const {
    DiskFile leader = *DiskFile::create(path_, leader_geometry());
    std::vector<DiskEntry> entries;
    for (std::uint32_t i = 0; i < count; ++i) {
      const DiskGeometry whole{.space = {}, .block_bytes = whole_.block_bytes(), .row_bytes = whole_.row_bytes()};
      entries.push_back({.block_id = BlockId{i},
                         .key = key(i),
                         .checksum = checksum_of(whole, leader.geometry().space.id(), key(i), block(i)),
                         .tokens_hash = BlockHash{9}});
    }
    const std::vector<DiskPart> parts = *parts_of(grid, whole_, stage_layers);
    for (const DiskPart& part : parts) {
      DiskGeometry geometry = leader_geometry();
      geometry.space.weights_generation = 0;
      geometry.space.shard = part.name();
      geometry.block_bytes = part.shape(whole_).block_bytes();
      geometry.row_bytes = whole_.row_bytes();
      geometry.keeps_secret = false;
      const DiskFile file = *DiskFile::create(str_cat(path_, ".", part.name()), geometry);
      std::vector<std::byte> bytes(geometry.block_bytes);
      for (std::uint32_t i = 0; i < count; ++i) {
        take_part(whole_, part, block(i), bytes);
        ASSERT_TRUE(file.write_blocks(BlockId{i}, bytes));
      }
    }
    ASSERT_TRUE(leader.put(entries));
  }
  // Flips a bit of a block in the file of this part.
  void damage(const std::string& part, std::uint32_t block_id) const {
    const std::string name = str_cat(path_, ".", part);
    std::uint64_t offset = 0;
    {
      const DiskFile file = *DiskFile::inspect(name);
      offset = file.data_offset() + block_id * file.block_step() + 7;
    }
    std::fstream file(name, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    const int byte = file.get();
    file.seekp(static_cast<std::streamoff>(offset));
    file.put(static_cast<char>(byte ^ 0x10));
  }
  // Names and bytes of all files in the folder.
  [[nodiscard]] std::map<std::string, std::string> folder() const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path())) {
      std::string& bytes = files[entry.path().filename()];
      bytes.resize(entry.file_size());
      std::ifstream(entry.path(), std::ios::binary).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    return files;
  }

  // 5 layers of 4 heads, of rows that are whole words.
  KvShape whole_{.layers = 5, .kv = 2, .page_size = 4, .heads = 4, .head_size = 24, .element_bits = 8};
  std::uint32_t blocks_ = 20;
  const TestFolder folder_;
  const std::string path_ = folder_.in("blocks");
};

}  // namespace cairn
