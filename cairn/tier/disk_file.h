// DiskFile: the file of a disk tier: what it is a cache of, which block each block holds, and the blocks themselves.
//
// Does:     outlives the process. Two copies of a superblock say which model, namespace and layout the blocks are of and
//           where the parts of the file are; an entry for each block says which key's block it holds and the checksum
//           that its bytes must have. The blocks are written and read by others (transfer/), at data_offset() + block x
//           block_step().
// Promises: a block is named only while its bytes are those of the block: put() comes after its bytes were written, and
//           erase() before others are. A process killed at any instant leaves entries that are true; a machine that
//           loses its power can leave an entry older than the bytes, which the checksum, bound to the key, then refuses.
// Fences:   fence() makes all entries void at once, in one write to each superblock that is on the disk before it returns:
//           from then on no restart and no loss of power brings one of them back.
// Recovers: from the entries alone, without reading blocks. An entry that does not add up, cannot be read, or whose block
//           was cut off is skipped and counted.
// Refuses:  a file of another format, model, namespace, layout or key secret, by name; a file that somebody else has
//           open, to write or to look at.
// Secret:   the file may hold the secret that keys are made with. It is made with mode 0600, and refused if it has become
//           readable for others.
// Owner:    move-only; holds the file open and locked.
// Threads:  one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/tier/disk_lock.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_secret.h"
#include "cairn/tokens/namespace.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

// Where the parts of a file are, in bytes.
struct DiskPlaces {
  std::uint64_t data_offset = 0;  // of the first block
  std::uint64_t block_step = 0;   // from one block to the next
  std::uint64_t file_bytes = 0;   // of the whole file

  friend bool operator==(const DiskPlaces&, const DiskPlaces&) = default;
};

// What the blocks of a file are, and how many there is room for. A file is opened only by who says the same.
struct DiskGeometry {
  Namespace space;                // whose blocks
  std::uint64_t block_bytes = 0;  // of one block; 0: the file has entries only, the blocks are in other files
  std::uint64_t row_bytes = 0;    // of one of its rows (layout/kv_shape.h): checksums count words by rows
  std::uint32_t blocks = 0;
  // Whether the file keeps the secret that its keys are made with, so that they are the same after a restart.
  bool keeps_secret = false;
  // Given: a new file keeps this secret, and another file is opened only if it has this one. Otherwise a new file gets a
  // random secret. DiskFile::geometry() has the file's.
  std::optional<KeySecret> secret = {};

  [[nodiscard]] bool has_blocks() const { return block_bytes != 0; }
  // Fails also if a file cannot have so many bytes.
  [[nodiscard]] Status validate() const;
  // std::nullopt if the places are beyond what a file can have.
  [[nodiscard]] std::optional<DiskPlaces> places() const;
};

struct DiskEntry {
  BlockId block_id = kNoBlock;
  BlockKey key;
  Checksum checksum = {};
  BlockHash tokens_hash{0};  // for those who follow events
  std::uint64_t order = 0;   // grows with each put: which of two entries is the later one

  friend bool operator==(const DiskEntry&, const DiskEntry&) = default;
};

// What open() does with a file whose superblock is right and whose length is not.
enum class OnDamage : std::uint8_t {
  kRefuse,
  kRepair,  // gives it the length that it must have; recover() leaves out the blocks that were cut off
};

struct DiskRecovery {
  std::vector<DiskEntry> entries;         // oldest first; no key and no block twice
  std::uint32_t damaged = 0;              // entries that did not add up
  std::uint32_t cut_off = 0;              // entries whose blocks lie beyond the length that the file was found with
  std::uint32_t superseded = 0;           // older entries of a key that stands there twice
  std::vector<BlockId> passed_over = {};  // the blocks of those: their entries are still there
  bool clean = false;                     // the last one closed it
};

class DiskFile {
 public:
  static constexpr std::uint32_t kFormat = 2;
  static constexpr std::uint64_t kAlignment = 4096;  // of every block, for direct I/O

  // Makes the file, with room for all blocks, and opens it; fails if there is one. Written as PATH.new until it is whole;
  // see disk_lock.h for what is done with a PATH.new that is there.
  [[nodiscard]] static Result<DiskFile> create(const std::string& path, const DiskGeometry& geometry);
  // Fails if it is not just such a file, and says in what it differs: kFailedPrecondition if it is the cache of something
  // else, in use, or keeps a secret that others than its owner may read, kCorrupt if it is damaged, has another format or is no disk tier at all.
  [[nodiscard]] static Result<DiskFile> open(const std::string& path, const DiskGeometry& geometry,
                                             OnDamage on_damage = OnDamage::kRefuse);
  // As it is, whatever it is a cache of: for those who look at files. Nothing is written; it is locked all the same, so
  // that it does not change meanwhile.
  [[nodiscard]] static Result<DiskFile> inspect(const std::string& path);
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  // Marks the file as closed, if it was opened to be written.
  ~DiskFile();

  [[nodiscard]] Result<DiskRecovery> recover();

  // These blocks now hold these blocks. `order` is given by the file.
  [[nodiscard]] Status put(std::span<const DiskEntry> entries);
  // These blocks hold nothing any more.
  [[nodiscard]] Status erase(std::span<const BlockId> block_ids);
  // No block holds anything any more; takes the same time however many did. The file is of this generation of the weights
  // from now on, if one is given. Requires: what the file held when it was opened is recovered. When it fails, the fence holds in this process but may not survive it.
  [[nodiscard]] Status fence(std::optional<std::uint64_t> weights_generation);
  // What was written before is on the disk.
  [[nodiscard]] Status sync() const;

  // The areas of blocks that follow each other, from `first` on, each of block_step() bytes; the last one may be read in
  // part. For those who look at all of a file: they go through the page cache.
  // Requires: a file with blocks; as many bytes as the blocks from there on have, at most.
  [[nodiscard]] Status read_blocks(BlockId first, std::span<std::byte> bytes) const;
  // The same area, written; before put() names it.
  [[nodiscard]] Status write_blocks(BlockId first, std::span<const std::byte> bytes) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const DiskGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::uint64_t data_offset() const { return places_.data_offset; }
  [[nodiscard]] std::uint64_t block_step() const { return places_.block_step; }
  [[nodiscard]] std::uint64_t file_bytes() const { return places_.file_bytes; }

  // What the file had when it was opened; file_bytes() unless it was damaged.
  [[nodiscard]] std::uint64_t found_bytes() const { return found_bytes_; }

  // Gives this file the owner and the permissions of the other.
  [[nodiscard]] Status take_rights_of(const DiskFile& other) const;

 private:
  DiskFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  [[nodiscard]] std::uint64_t offset_of(BlockId first, std::uint64_t bytes) const;
  [[nodiscard]] Status read_superblock(bool& clean);
  [[nodiscard]] Status check_secret(const DiskGeometry& wanted) const;
  enum class Flush : std::uint8_t { kNone, kEach };
  // kEach: each copy is on the disk before the next step.
  [[nodiscard]] Status write_superblock(bool clean, Flush flush = Flush::kNone) const;
  [[nodiscard]] Status check_length() const;
  [[nodiscard]] Status restore_length() const;
  [[nodiscard]] Status take_room() const;
  void read_entries(std::span<std::byte> bytes, std::uint64_t offset) const;
  // The entries of these blocks, in ascending order: `encode(i)` gives the bytes of the i-th.
  template <typename Encode>
  [[nodiscard]] Status write_entries(std::span<const BlockId> block_ids, Encode encode) const;
  [[nodiscard]] Status write_at(std::span<const std::byte> bytes, std::uint64_t offset) const;
  // The same, and the bytes are on the disk. What else was written to the file is not waited for.
  [[nodiscard]] Status write_through_at(std::span<const std::byte> bytes, std::uint64_t offset) const;
  [[nodiscard]] Status read_at(std::span<std::byte> bytes, std::uint64_t offset) const;
  [[nodiscard]] Error io_error(const char* what, int number) const;
  void close();

  std::string path_;
  int file_ = -1;
  disk::Access access_ = disk::Access::kRead;  // nothing is marked until all is known to be well
  DiskGeometry geometry_;
  DiskPlaces places_;
  std::uint64_t found_bytes_ = 0;
  bool was_clean_ = false;
  std::uint64_t next_order_ = 1;
  std::uint64_t fence_ = 0;  // entries with a lower order are void
};

}  // namespace cairn
