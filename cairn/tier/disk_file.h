// DiskFile: the file of a disk tier. Two copies of a superblock say which model, namespace and layout the blocks are of and where
// the parts of the file are. An entry for each block says which key it holds and which checksum its bytes must have. Transfers
// write and read the blocks themselves, at data_offset() + block x block_step().
//
// A block has an entry only while it holds the bytes of that key: put() is called after the bytes were written, and erase() before
// others are. A process that is killed at any instant leaves entries that are true. A loss of power can leave an entry that is
// older than the bytes; the checksum, which is bound to the key, then refuses them. fence() makes all entries void at once, with
// one write to each superblock that is on the disk before it returns: no restart and no loss of power brings them back.
//
// recover() reads only the entries, not the blocks. It skips and counts an entry that is damaged, cannot be read, or whose block
// was cut off.
//
// The file may hold the secret that keys are made with. It is created with mode 0600, and refused if others can read it.
//
// Thread safety: none; one thread at a time.
// Ownership: move-only; holds the file open and locked.
// Errors: see open(). A file that another process has open, to write or to inspect, is refused.
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
#include "cairn/tokens/key_hasher.h"
#include "cairn/transfer/checksum.h"

namespace cairn {

// Where the parts of a file are, in bytes.
struct DiskPlaces {
  std::uint64_t data_offset = 0;  // of the first block
  std::uint64_t block_step = 0;   // from one block to the next
  std::uint64_t file_bytes = 0;   // of the whole file

  friend bool operator==(const DiskPlaces&, const DiskPlaces&) = default;
};

// Bytes of a file before its first block.
[[nodiscard]] std::uint64_t disk_header_bytes(std::uint32_t blocks);

// What the blocks of a file are and how many it has. A file is opened only with the same geometry.
struct DiskGeometry {
  Namespace space;                // whose blocks
  std::uint64_t block_bytes = 0;  // of one block; 0 if the file has only entries, and the blocks are in other files
  std::uint64_t row_bytes = 0;    // of one of its rows (layout/block_layout.h): checksums count words by rows
  std::uint32_t blocks = 0;
  // Whether the file keeps the secret that its keys are made with, so that they are the same after a restart.
  bool keeps_secret = false;
  // If given, a new file keeps this secret, and an existing file is opened only if it has it. Otherwise a new file gets a random
  // secret. DiskFile::geometry() has the secret of the file.
  std::optional<KeySecret> secret = {};

  [[nodiscard]] bool has_blocks() const { return block_bytes != 0; }
  // Also fails if a file cannot have so many bytes.
  [[nodiscard]] Status validate() const;
  // std::nullopt if the places are beyond what a file can have.
  [[nodiscard]] std::optional<DiskPlaces> places() const;
};

struct DiskEntry {
  BlockId block_id = kNoBlock;
  BlockKey key;
  Checksum checksum = {};
  BlockHash tokens_hash{0};  // for followers of events
  std::uint64_t order = 0;   // grows with each put(): the higher one of two entries is the later

  friend bool operator==(const DiskEntry&, const DiskEntry&) = default;
};

// What open() does with a file whose superblock is right and whose length is not.
enum class OnDamage : std::uint8_t {
  kRefuse,
  kRepair,  // restores the length; recover() skips the blocks that were cut off
};

struct DiskRecovery {
  std::vector<DiskEntry> entries;         // oldest first; no key and no block twice
  std::uint32_t damaged = 0;              // entries with a wrong checksum
  std::uint32_t cut_off = 0;              // entries whose blocks lie beyond the length that the file was found with
  std::uint32_t superseded = 0;           // older entries of a key that has several
  std::vector<BlockId> passed_over = {};  // the blocks of all those; their entries are still in the file
  bool clean = false;                     // it was closed
};

class DiskFile {
 public:
  static constexpr std::uint32_t kFormat = 2;
  static constexpr std::uint64_t kAlignment = 4096;  // of every block, for direct I/O

  // Creates the file with room for all blocks; fails if there is one. It is written as PATH.new until it is complete (disk_lock.h
  // says what happens to a PATH.new that exists).
  [[nodiscard]] static Result<DiskFile> create(const std::string& path, const DiskGeometry& geometry);
  // kFailedPrecondition if the file has another geometry (the message says how it differs), is in use, or keeps a secret that
  // other users may read. kCorrupt if it is damaged, has another format or is not a disk tier.
  [[nodiscard]] static Result<DiskFile> open(const std::string& path, const DiskGeometry& geometry,
                                             OnDamage on_damage = OnDamage::kRefuse);
  // Opens a file without entries that another process has open and keeps, to copy its blocks. Writes nothing but blocks. `seat`:
  // see disk::open_shared().
  [[nodiscard]] static Result<DiskFile> open_beside(const std::string& path, const DiskGeometry& geometry,
                                                    std::uint32_t seat);
  // Opens any disk tier to read it, whatever its geometry. It is locked, so that it does not change meanwhile.
  [[nodiscard]] static Result<DiskFile> inspect(const std::string& path);
  DiskFile(DiskFile&& other) noexcept;
  DiskFile& operator=(DiskFile&& other) noexcept;
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  // Marks the file as clean, unless it was opened by inspect().
  ~DiskFile();

  [[nodiscard]] Result<DiskRecovery> recover();

  // Writes the entries; the file sets `order`.
  [[nodiscard]] Status put(std::span<const DiskEntry> entries);
  // Erases the entries of these blocks.
  [[nodiscard]] Status erase(std::span<const BlockId> block_ids);
  // Makes all entries void, in constant time. If a weights generation is given, the file has that generation from now on. If it
  // fails, the fence holds in this process but may not survive it. Requires: recover() was called.
  [[nodiscard]] Status fence(std::optional<std::uint64_t> weights_generation);
  // When it returns, everything that was written before is on the disk.
  [[nodiscard]] Status sync() const;

  // Reads consecutive blocks from `first` on, block_step() bytes each, through the page cache. The last one may be read in part.
  // Requires: the file has blocks, and has so many bytes from there on.
  [[nodiscard]] Status read_blocks(BlockId first, std::span<std::byte> bytes) const;
  // Writes them; call it before put().
  [[nodiscard]] Status write_blocks(BlockId first, std::span<const std::byte> bytes) const;

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] const DiskGeometry& geometry() const { return geometry_; }
  [[nodiscard]] std::uint64_t data_offset() const { return places_.data_offset; }
  [[nodiscard]] std::uint64_t block_step() const { return places_.block_step; }
  [[nodiscard]] std::uint64_t file_bytes() const { return places_.file_bytes; }

  // The size of the file when it was opened; file_bytes() unless it was damaged.
  [[nodiscard]] std::uint64_t found_bytes() const { return found_bytes_; }
  // False if create(), or open() of a file that was cut off, found that the file system cannot reserve space.
  [[nodiscard]] bool is_reserved() const { return is_reserved_; }

  // Gives this file the owner and the permissions of the other.
  [[nodiscard]] Status take_rights_of(const DiskFile& other) const;

 private:
  DiskFile(std::string path, int descriptor) : path_(std::move(path)), file_(descriptor) {}
  [[nodiscard]] std::uint64_t offset_of(BlockId first, std::uint64_t bytes) const;
  [[nodiscard]] Status read_superblock(bool& clean);
  [[nodiscard]] Status check_secret(const DiskGeometry& wanted) const;
  enum class Flush : std::uint8_t { kNone, kEach };
  // kEach: each copy is on the disk before the next one is written.
  [[nodiscard]] Status write_superblock(bool clean, Flush flush = Flush::kNone) const;
  [[nodiscard]] Status check_length() const;
  [[nodiscard]] Status restore_length();
  [[nodiscard]] Status take_room();
  void read_entries(std::span<std::byte> bytes, std::uint64_t offset) const;
  // Writes the entries of these blocks, which are in ascending order; `encode(i)` returns the bytes of the i-th.
  template <typename Encode>
  [[nodiscard]] Status write_entries(std::span<const BlockId> block_ids, Encode encode) const;
  [[nodiscard]] Status write_at(std::span<const std::byte> bytes, std::uint64_t offset) const;
  // The same, and waits until these bytes are on the disk.
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
  bool is_reserved_ = true;
  bool was_clean_ = false;
  std::uint64_t next_order_ = 1;
  std::uint64_t fence_ = 0;  // entries with a lower order are void
};

}  // namespace cairn
