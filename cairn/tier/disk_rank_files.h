// The files that ranks keep beside the file of their leader. The leader's file PATH has the entries; a rank's file has its part of
// every block, in the same place for all of them, and is named by what it holds: PATH.l0-31.h4-7 has heads 4 to 7 of layers 0 to
// 31. Files of replicas that do not share one (PATH.l0-31.h4-7.c1) and of several groups of layers (PATH.l0-31.t1of2.g0) are
// found too, but not read here.
//
// A whole block is the rows of all parts in the order of the model (layout/block_layout.h). Its checksum is in the leader's entry and
// does not depend on how the block is split.
//
// Thread safety: none; one thread at a time for a RankFiles.
// Errors: every message names the file, and what to do.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/layout/block_layout.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/tier/disk_check.h"
#include "cairn/tier/disk_file.h"
#include "cairn/tier/disk_lock.h"

namespace cairn {

// The part of every block that one file holds.
struct DiskPart {
  LayerRange layers = {};
  std::uint32_t first_head = 0;
  std::uint32_t heads = 0;

  [[nodiscard]] bool overlaps(const DiskPart& other) const;
  [[nodiscard]] KvShape shape(const KvShape& whole) const;
  // "l0-31.h4-7", as RankShare::name()
  [[nodiscard]] std::string name() const;
  friend bool operator==(const DiskPart&, const DiskPart&) = default;
};

// The parts that the ranks of a grid have, each once, by layer, then by head. `stage_layers`: the number of layers of each pipeline
// stage; empty: even_layers().
[[nodiscard]] Result<std::vector<DiskPart>> parts_of(const RankGrid& grid, const KvShape& whole,
                                                     std::span<const std::uint32_t> stage_layers = {});
// Whether every row of a block is in exactly one of the parts.
[[nodiscard]] Status check_cover(std::span<const DiskPart> parts, const KvShape& whole);

// Copies the rows of a part out of a whole block, and back into one. Requires: bytes of these shapes.
void take_part(const KvShape& whole, const DiskPart& part, std::span<const std::byte> block, std::span<std::byte> out);
void put_part(const KvShape& whole, const DiskPart& part, std::span<const std::byte> bytes, std::span<std::byte> block);

// What the name of a rank's file says.
struct RankFileName {
  std::string suffix = {};   // after PATH and a dot; the shard in the file's superblock
  DiskPart part = {};        // of a group: the tensor rank as head, in a model of `tensor` heads
  std::uint32_t copy = 0;    // of replicas that keep a copy each
  std::uint32_t tensor = 0;  // of a group: the number of tensor ranks; otherwise 0
  [[nodiscard]] bool is_of_group() const { return tensor != 0; }

  [[nodiscard]] static std::optional<RankFileName> parse(std::string_view suffix);
};
// Those beside PATH, sorted by layer, head and name. `end`: what their names end with after that, such as ".reshard".
[[nodiscard]] std::vector<RankFileName> find_rank_files(const std::string& path, std::string_view end = {});
// Whether the file holds a rank's part of blocks whose entries are in another file.
[[nodiscard]] bool is_rank_file(const DiskFile& file);
// The file with those entries; "disk.path" if the file has got another name. Requires: is_rank_file(file).
[[nodiscard]] std::string leader_of(const DiskFile& file);

// Files beside PATH that cannot belong to the grid of the rank that has the file `own` (its suffix): those that hold a part of
// what the rank holds, but not the same. Their blocks would be lost to the rank.
[[nodiscard]] std::vector<std::string> files_of_another_grid(const std::string& path, std::string_view own);

// The leader's file and the files of all its ranks, locked, to read whole blocks.
class RankFiles {
 public:
  // Fails if a part is missing or is there twice, if a file is not of this leader, damaged or in use, and if the files are of
  // several groups of layers or of replicas that keep a copy each.
  // `access`: to the leader's file; the others are only read.
  [[nodiscard]] static Result<RankFiles> open(const std::string& path, disk::Access access = disk::Access::kRead);

  // Its path is PATH.
  [[nodiscard]] DiskFile& leader() { return leader_; }
  [[nodiscard]] const DiskFile& leader() const { return leader_; }
  // The shape of a whole block; a row is one head of `row bytes` elements of 8 bits.
  [[nodiscard]] const KvShape& whole() const { return whole_; }
  [[nodiscard]] std::span<const DiskPart> parts() const { return parts_; }
  [[nodiscard]] const DiskFile& file(std::size_t part) const { return files_[part]; }

  // Reads one block, all parts of it. Requires: whole().block_bytes() bytes.
  [[nodiscard]] Status read(BlockId block_id, std::span<std::byte> block);
  // Whether these are the bytes that the entry names.
  [[nodiscard]] bool is_right(const DiskEntry& entry, std::span<const std::byte> block) const;

 private:
  explicit RankFiles(DiskFile leader) : leader_(std::move(leader)) {}

  DiskFile leader_;
  NamespaceId space_{};
  KvShape whole_;
  std::vector<DiskPart> parts_;
  std::vector<DiskFile> files_;  // of each part
  std::vector<std::byte> bytes_;
};

// As check_blocks() of one file. Requires: entries of the leader's file.
[[nodiscard]] Result<DiskCheck> check_blocks(RankFiles& files, std::span<const DiskEntry> entries,
                                             const DiskProgress& progress = {});

}  // namespace cairn
