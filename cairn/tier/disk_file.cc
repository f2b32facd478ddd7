#include "cairn/tier/disk_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "cairn/base/check.h"
#include "cairn/base/str_cat.h"
#include "cairn/memory/preallocate.h"
#include "cairn/tier/disk_format.h"
#include "cairn/tier/disk_rank_files.h"

namespace cairn {

namespace {

constexpr std::uint64_t kDataAlignment = std::uint64_t{2} << 20;
constexpr std::uint64_t kMostBlockBytes = std::uint64_t{1} << 40;
constexpr std::uint64_t kMostRowBytes = 0xFFFF'FFFF;
constexpr std::size_t kEntriesAtOnce = 16'384;

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// What is different, for people: "model 'a', not 'b'".
std::string differences(const DiskGeometry& has, const DiskGeometry& wanted) {
  std::string all;
  const auto compare = [&all](const char* name, const auto& one, const auto& other) {
    if (one != other) {
      all += str_cat(all.empty() ? "" : ", ", name, " '", one, "', not '", other, "'");
    }
  };
  compare("tenant", has.space.tenant, wanted.space.tenant);
  compare("model", has.space.model, wanted.space.model);
  compare("weights generation", has.space.weights_generation, wanted.space.weights_generation);
  compare("layout", has.space.layout, wanted.space.layout);
  compare("element type", has.space.element_type, wanted.space.element_type);
  compare("shard", has.space.shard, wanted.space.shard);
  compare("block size", has.space.block_size, wanted.space.block_size);
  compare("key scheme", to_string(has.space.scheme), to_string(wanted.space.scheme));
  compare("bytes a block", has.block_bytes, wanted.block_bytes);
  compare("bytes a row", has.row_bytes, wanted.row_bytes);
  compare("blocks", has.blocks, wanted.blocks);
  return all;
}

// Which entries are not followed by another one of their key. A flat table: a restart with a million entries spends most
// of its time here otherwise.
std::vector<bool> last_of_each_key(std::span<const DiskEntry> entries) {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  std::vector<std::uint32_t> places(std::bit_ceil(2 * entries.size() + 2), kNone);
  const int shift = 64 - std::countr_zero(places.size());
  std::vector<bool> is_last(entries.size(), true);
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    // The high bits of a product depend on all bits of a key.
    std::size_t at = (std::hash<BlockKey>()(entries[i].key) * 0x9E3779B97F4A7C15U) >> shift;
    while (places[at] != kNone && entries[places[at]].key != entries[i].key) {
      at = (at + 1) & (places.size() - 1);
    }
    if (places[at] != kNone) {
      is_last[places[at]] = false;
    }
    places[at] = i;
  }
  return is_last;
}

}  // namespace

Status DiskGeometry::validate() const {
  if (block_bytes > kMostBlockBytes || blocks == 0 || space.block_size == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a disk tier of ", blocks, " blocks of ", block_bytes, " bytes and ", space.block_size,
                        " tokens; it takes at least 1 of each"));
  }
  if (!places()) {
    return fail(ErrorCode::kInvalidArgument, str_cat("a disk tier of ", blocks, " blocks of ", block_bytes,
                                                     " bytes is more than a file can have; give it fewer blocks"));
  }
  if (!has_blocks()) {
    return row_bytes == 0 ? Status()
                          : fail(ErrorCode::kInvalidArgument, str_cat("rows of ", row_bytes, " bytes in blocks of 0"));
  }
  if (row_bytes == 0 || row_bytes > kMostRowBytes || block_bytes % row_bytes != 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat("blocks of ", block_bytes, " bytes in rows of ", row_bytes,
                                                     "; a block has a whole number of rows"));
  }
  return {};
}

std::uint64_t disk_header_bytes(std::uint32_t blocks) {
  return round_up(disk::kEntriesOffset + std::uint64_t{blocks} * disk::kEntryBytes, kDataAlignment);
}

std::optional<DiskPlaces> DiskGeometry::places() const {
  if (block_bytes > kMostBlockBytes || blocks >= index_of(kNoBlock)) {
    return std::nullopt;
  }
  // Neither of these can overflow: fewer than 2^32 blocks, and at most 2^40 bytes of a block.
  DiskPlaces places{.data_offset = disk_header_bytes(blocks),
                    .block_step = round_up(block_bytes, DiskFile::kAlignment)};
  std::uint64_t blocks_bytes = 0;
  if (__builtin_mul_overflow(places.block_step, std::uint64_t{blocks}, &blocks_bytes) ||
      __builtin_add_overflow(places.data_offset, blocks_bytes, &places.file_bytes) ||
      places.file_bytes > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return std::nullopt;
  }
  return places;
}

DiskFile::DiskFile(DiskFile&& other) noexcept { *this = std::move(other); }

DiskFile& DiskFile::operator=(DiskFile&& other) noexcept {
  if (this != &other) {
    close();
    path_ = std::move(other.path_);
    file_ = std::exchange(other.file_, -1);
    access_ = other.access_;
    geometry_ = std::move(other.geometry_);
    places_ = other.places_;
    found_bytes_ = other.found_bytes_;
    is_reserved_ = other.is_reserved_;
    was_clean_ = other.was_clean_;
    next_order_ = other.next_order_;
    fence_ = other.fence_;
  }
  return *this;
}

DiskFile::~DiskFile() { close(); }

void DiskFile::close() {
  if (file_ == -1) {
    return;
  }
  if (access_ == disk::Access::kWrite) {
    static_cast<void>(write_superblock(true));  // if it fails the next one recovers as after a crash: the same way
  }
  ::close(std::exchange(file_, -1));
}

Error DiskFile::io_error(const char* what, int number) const { return disk::file_error(what, path_, number); }

Result<DiskFile> DiskFile::create(const std::string& path, const DiskGeometry& geometry) {
  CAIRN_TRY(geometry.validate());
  if (access(path.c_str(), F_OK) == 0) {
    return fail(ErrorCode::kAlreadyExists, str_cat(path, " exists; open it, or remove it first"));
  }
  // Under another name until it is whole: a file that stopped halfway is never found.
  const std::string unfinished = path + ".new";
  CAIRN_TRY_ASSIGN(const int made, disk::create_locked(unfinished));
  DiskFile file(unfinished, made);
  file.geometry_ = geometry;
  file.places_ = *geometry.places();
  if (geometry.keeps_secret && !geometry.secret) {
    file.geometry_.secret = KeySecret::random();
  }
  Status status = file.take_room();
  if (status) {
    status = file.write_superblock(false);
  }
  if (status) {
    status = file.sync();
  }
  // link() and not rename(): a file that somebody made meanwhile is not replaced.
  if (status && ::link(unfinished.c_str(), path.c_str()) != 0) {
    status = Unexpected(file.io_error("finish", errno));
  }
  ::unlink(unfinished.c_str());
  if (!status) {
    return Unexpected(status.error());
  }
  file.path_ = path;
  file.found_bytes_ = file.file_bytes();
  file.access_ = disk::Access::kWrite;
  file.was_clean_ = true;
  return file;
}

// Of the whole file, as far as it has none yet.
Status DiskFile::take_room() {
  struct stat facts{};
  struct statvfs space{};
  const auto refuse = [&](int number) -> Status {
    Error error = io_error("take room for", number);
    if (number == ENOSPC && fstatvfs(file_, &space) == 0) {
      error.message += str_cat("; it takes ", file_bytes(), " bytes and ", space.f_bavail * space.f_frsize,
                               " are free: make room or give the tier fewer blocks");
    }
    return Unexpected(std::move(error));
  };
  if (fstat(file_, &facts) != 0) {
    return refuse(errno);
  }
  // Checked first: trying would leave the disk full for a moment, and other programs would fail.
  const std::uint64_t has = std::min<std::uint64_t>(static_cast<std::uint64_t>(facts.st_blocks) * 512, file_bytes());
  if (fstatvfs(file_, &space) == 0 && space.f_bavail * space.f_frsize < file_bytes() - has) {
    return refuse(ENOSPC);
  }
  const Preallocated done = preallocate(file_, file_bytes());
  is_reserved_ = done.is_reserved;
  return done.error == 0 ? Status() : refuse(done.error);
}

Status DiskFile::check_length() const {
  return found_bytes_ >= file_bytes()
             ? Status()
             : fail(ErrorCode::kCorrupt,
                    str_cat(path_, " was cut off: it has ", found_bytes_, " bytes of ", file_bytes(),
                            "; remove it, or open it with "
                            "disk.opening = \"reuse\", which uses what is left of it"));
}

Status DiskFile::restore_length() {
  if (found_bytes_ > file_bytes() && ftruncate(file_, static_cast<off_t>(file_bytes())) != 0) {
    return Unexpected(io_error("cut", errno));
  }
  return found_bytes_ < file_bytes() ? take_room() : Status();
}

Result<DiskFile> DiskFile::open(const std::string& path, const DiskGeometry& geometry, OnDamage on_damage) {
  CAIRN_TRY_ASSIGN(const int opened, disk::open_locked(path, disk::Access::kWrite));
  DiskFile file(path, opened);
  CAIRN_TRY(file.read_superblock(file.was_clean_));
  const bool is_of_ranks = !file.geometry_.has_blocks() || is_rank_file(file);
  DiskGeometry resized = file.geometry_;
  resized.blocks = geometry.blocks;
  if (file.geometry_.blocks != geometry.blocks && differences(resized, geometry).empty()) {
    return fail(
        ErrorCode::kFailedPrecondition,
        str_cat(path, " has ", file.geometry_.blocks, " blocks, but the configuration asks for ", geometry.blocks,
                is_of_ranks ? "; files of ranks keep their number of blocks: "
                            : str_cat("; to change the file, run `cairn disk compact --blocks ", geometry.blocks, " ",
                                      path, "`, or "),
                "set disk.blocks to ", file.geometry_.blocks,
                is_of_ranks ? ", or start anew with disk.opening = \"fresh\"" : ""));
  }
  if (const std::string other = differences(file.geometry_, geometry); !other.empty()) {
    return fail(ErrorCode::kFailedPrecondition, str_cat(path, " is the cache of something else: it has ", other,
                                                        "; give this one another file, or remove it"));
  }
  CAIRN_TRY(file.check_secret(geometry));
  CAIRN_TRY(on_damage == OnDamage::kRepair ? file.restore_length() : file.check_length());
  // From here on it is not clean until it is closed.
  CAIRN_TRY(file.write_superblock(false));
  file.access_ = disk::Access::kWrite;
  return file;
}

Status DiskFile::check_secret(const DiskGeometry& wanted) const {
  if (geometry_.secret.has_value() != wanted.keeps_secret) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path_, wanted.keeps_secret ? " keeps no key secret" : " keeps a key secret",
                        ", unlike what the key scheme asks for; give this one another file, or remove it"));
  }
  if (wanted.secret && geometry_.secret != wanted.secret) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path_,
                        " was made with another key secret than the one configured (model.secret); configure that "
                        "one, or none to use the file's, or give this one another file"));
  }
  struct stat facts{};
  if (fstat(file_, &facts) != 0) {
    return Unexpected(io_error("look at", errno));
  }
  if (geometry_.secret && (facts.st_mode & 077) != 0) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path_,
                        " holds the secret that keys are made with, and others than its owner may access it; "
                        "remove it if they may have read it, otherwise chmod 600 it"));
  }
  return {};
}

Result<DiskFile> DiskFile::open_beside(const std::string& path, const DiskGeometry& geometry, std::uint32_t seat) {
  CAIRN_TRY_ASSIGN(const int opened, disk::open_shared(path, seat));
  DiskFile file(path, opened);
  CAIRN_TRY(file.read_superblock(file.was_clean_));
  if (const std::string other = differences(file.geometry_, geometry); !other.empty()) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path, " is not the file of the rank that keeps it: it has ", other));
  }
  CAIRN_TRY(file.check_length());
  return file;
}

Result<DiskFile> DiskFile::inspect(const std::string& path) {
  CAIRN_TRY_ASSIGN(const int opened, disk::open_locked(path, disk::Access::kRead));
  DiskFile file(path, opened);
  CAIRN_TRY(file.read_superblock(file.was_clean_));
  CAIRN_TRY(file.check_length());
  return file;
}

Status DiskFile::read_superblock(bool& clean) {
  struct stat facts{};
  if (fstat(file_, &facts) != 0) {
    return Unexpected(io_error("look at", errno));
  }
  found_bytes_ = static_cast<std::uint64_t>(facts.st_size);
  if (found_bytes_ < disk::kSuperblockBytes) {
    return fail(ErrorCode::kCorrupt, str_cat(path_, facts.st_size == 0 ? " is empty" : " is too short",
                                             ": it is no disk tier's file, or what is left of one; name another"));
  }
  Error first;
  std::optional<disk::Superblock> latest;
  for (const std::uint64_t offset : {std::uint64_t{0}, std::uint64_t{disk::kSuperblockBytes}}) {
    disk::SuperblockBytes bytes{};
    Status read = read_at(bytes, offset);
    Result<disk::Superblock> superblock =
        read ? disk::decode_superblock(bytes) : Result<disk::Superblock>(Unexpected(Error(read.error())));
    if (superblock && (!latest || superblock->fence > latest->fence)) {
      latest = *std::move(superblock);
    } else if (!superblock && offset == 0) {
      first = superblock.error();
    }
  }
  if (!latest) {
    // Whatever the reason, a bad sector included: what is in the file cannot be known.
    return fail(ErrorCode::kCorrupt, str_cat(path_, " cannot be used: ", first.message));
  }
  geometry_ = std::move(latest->geometry);
  fence_ = latest->fence;
  next_order_ = std::max(next_order_, fence_);
  clean = latest->clean;
  places_ = *geometry_.places();
  return {};
}

Status DiskFile::write_superblock(bool clean, Flush flush) const {
  const Result<disk::SuperblockBytes> bytes =
      disk::encode(disk::Superblock{.geometry = geometry_, .fence = fence_, .clean = clean});
  if (!bytes) {
    return Unexpected(Error(bytes.error()));
  }
  // One after the other: whenever it stops, one of the two is whole.
  for (const std::uint64_t offset : {std::uint64_t{disk::kSuperblockBytes}, std::uint64_t{0}}) {
    CAIRN_TRY(flush == Flush::kEach ? write_through_at(*bytes, offset) : write_at(*bytes, offset));
  }
  return {};
}

// What cannot be read becomes bytes that are no entry.
void DiskFile::read_entries(std::span<std::byte> bytes, std::uint64_t offset) const {
  if (read_at(bytes, offset)) {
    return;
  }
  constexpr std::size_t kPiece = 4096;  // what a bad sector takes with it
  for (std::size_t at = 0; at < bytes.size(); at += kPiece) {
    const std::span<std::byte> piece = bytes.subspan(at, std::min(kPiece, bytes.size() - at));
    if (!read_at(piece, offset + at)) {
      std::ranges::fill(piece, std::byte{0xFF});
    }
  }
}

Result<DiskRecovery> DiskFile::recover() {
  DiskRecovery recovery;
  recovery.clean = was_clean_;
  const NamespaceId space = geometry_.space.id();
  std::vector<std::byte> bytes(kEntriesAtOnce * disk::kEntryBytes);
  for (std::uint64_t first = 0; first < geometry_.blocks; first += kEntriesAtOnce) {
    const std::size_t count = std::min<std::uint64_t>(kEntriesAtOnce, geometry_.blocks - first);
    const std::span<std::byte> part = std::span(bytes).first(count * disk::kEntryBytes);
    read_entries(part, disk::kEntriesOffset + first * disk::kEntryBytes);
    for (std::size_t i = 0; i < count; ++i) {
      const std::span<const std::byte, disk::kEntryBytes> entry(part.subspan(i * disk::kEntryBytes, disk::kEntryBytes));
      const Result<std::optional<DiskEntry>> decoded = disk::decode_entry(
          entry, {.block_id = BlockId{static_cast<std::uint32_t>(first + i)}, .space = space, .fence = fence_});
      if (!decoded) {
        ++recovery.damaged;
        recovery.passed_over.push_back(BlockId{static_cast<std::uint32_t>(first + i)});
      } else if (decoded->has_value()) {
        const std::uint64_t end = places_.data_offset + (first + i) * places_.block_step + geometry_.block_bytes;
        if (geometry_.has_blocks() && end > found_bytes_) {
          ++recovery.cut_off;
          recovery.passed_over.push_back((*decoded)->block_id);
        } else {
          recovery.entries.push_back(**decoded);
        }
      }
    }
  }
  std::vector<DiskEntry>& entries = recovery.entries;
  std::sort(entries.begin(), entries.end(), [](const DiskEntry& a, const DiskEntry& b) { return a.order < b.order; });
  next_order_ = std::max(std::max<std::uint64_t>(fence_, 1), entries.empty() ? 1 : entries.back().order + 1);
  // If a key has several entries, the latest counts.
  const std::vector<bool> is_last = last_of_each_key(entries);
  std::size_t kept = 0;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (is_last[i]) {
      entries[kept++] = entries[i];
    } else {
      recovery.passed_over.push_back(entries[i].block_id);
    }
  }
  recovery.superseded = static_cast<std::uint32_t>(entries.size() - kept);
  entries.resize(kept);
  return recovery;
}

// Adjacent entries in one write: a system call costs more than the bytes of an entry.
template <typename Encode>
Status DiskFile::write_entries(std::span<const BlockId> block_ids, Encode encode) const {
  std::vector<std::byte> run;
  for (std::size_t first = 0; first < block_ids.size();) {
    std::size_t end = first + 1;
    while (end < block_ids.size() && end - first < kEntriesAtOnce &&
           index_of(block_ids[end]) == index_of(block_ids[end - 1]) + 1) {
      ++end;
    }
    run.resize((end - first) * disk::kEntryBytes);
    for (std::size_t i = first; i < end; ++i) {
      const disk::EntryBytes bytes = encode(i);
      std::memcpy(run.data() + (i - first) * disk::kEntryBytes, bytes.data(), bytes.size());
    }
    const std::uint64_t offset = disk::kEntriesOffset + std::uint64_t{index_of(block_ids[first])} * disk::kEntryBytes;
    CAIRN_TRY(write_at(run, offset));
    first = end;
  }
  return {};
}

Status DiskFile::put(std::span<const DiskEntry> entries) {
  const NamespaceId space = geometry_.space.id();
  std::vector<DiskEntry> sorted(entries.begin(), entries.end());
  for (DiskEntry& entry : sorted) {
    entry.order = next_order_++;
  }
  std::ranges::stable_sort(sorted, {}, &DiskEntry::block_id);
  std::vector<BlockId> block_ids;
  block_ids.reserve(sorted.size());
  for (const DiskEntry& entry : sorted) {
    block_ids.push_back(entry.block_id);
  }
  return write_entries(block_ids, [&](std::size_t i) { return disk::encode(sorted[i], space); });
}

Status DiskFile::erase(std::span<const BlockId> block_ids) {
  std::vector<BlockId> sorted(block_ids.begin(), block_ids.end());
  std::ranges::sort(sorted);
  return write_entries(sorted, [](std::size_t) { return disk::EntryBytes{}; });
}

Status DiskFile::fence(std::optional<std::uint64_t> weights_generation) {
  if (weights_generation) {
    geometry_.space.weights_generation = *weights_generation;
  }
  fence_ = next_order_ = next_order_ + 1;
  return write_superblock(false, Flush::kEach);
}

Status DiskFile::read_blocks(BlockId first, std::span<std::byte> bytes) const {
  return read_at(bytes, offset_of(first, bytes.size()));
}

Status DiskFile::write_blocks(BlockId first, std::span<const std::byte> bytes) const {
  return write_at(bytes, offset_of(first, bytes.size()));
}

std::uint64_t DiskFile::offset_of(BlockId first, std::uint64_t bytes) const {
  const std::uint64_t offset = places_.data_offset + index_of(first) * places_.block_step;
  CAIRN_CHECK(offset + bytes <= file_bytes(), "blocks within the file");
  return offset;
}

Status DiskFile::take_rights_of(const DiskFile& other) const {
  struct stat facts{};
  if (fstat(other.file_, &facts) != 0 || fchown(file_, facts.st_uid, facts.st_gid) != 0 ||
      fchmod(file_, facts.st_mode & 07777) != 0) {
    return fail(ErrorCode::kIo, str_cat("cannot give ", path_, " the owner and permissions of ", other.path_, ": ",
                                        std::strerror(errno), "; run this as the owner"));
  }
  return {};
}

Status DiskFile::sync() const {
  if (fdatasync(file_) != 0) {
    return Unexpected(io_error("flush", errno));
  }
  return {};
}

Status DiskFile::write_at(std::span<const std::byte> bytes, std::uint64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count <= 0) {
      return Unexpected(io_error("write to", count == 0 ? EIO : errno));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

Status DiskFile::write_through_at(std::span<const std::byte> bytes, std::uint64_t offset) const {
  const iovec part{.iov_base = const_cast<std::byte*>(bytes.data()), .iov_len = bytes.size()};  // only read
  const ssize_t count = pwritev2(file_, &part, 1, static_cast<off_t>(offset), RWF_DSYNC);
  if (count == static_cast<ssize_t>(bytes.size())) {
    return {};
  }
  // Short, interrupted, or a file system that cannot: the long way.
  CAIRN_TRY(write_at(bytes, offset));
  return sync();
}

Status DiskFile::read_at(std::span<std::byte> bytes, std::uint64_t offset) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(file_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      return Unexpected(io_error("read", errno));
    }
    if (count == 0) {
      return fail(ErrorCode::kCorrupt, str_cat(path_, " ends before byte ", offset + bytes.size()));
    }
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return {};
}

}  // namespace cairn
