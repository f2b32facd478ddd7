#include "cairn/tier/disk_compact.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/tier/disk_rank_files.h"

namespace cairn {

namespace {

// The name of the new file, until it is whole. One that a compaction before left there is removed.
Result<std::string> take_name(const std::string& path) {
  std::string name = path + ".compact";
  std::error_code none;
  if (std::filesystem::exists(name, none)) {
    const Result<DiskFile> left = DiskFile::inspect(name);
    if (!left) {
      return fail(left.error().code, str_cat("the new file would be ", name, ": ", left.error().message));
    }
    std::filesystem::remove(name, none);
  }
  return name;
}

// So that the name survives a loss of power as the bytes do. A file system that cannot do that keeps one of the two.
void sync_folder_of(const std::string& path) {
  std::error_code unknown;
  const std::filesystem::path folder = std::filesystem::absolute(path, unknown).parent_path();
  const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor != -1) {
    (void)::fsync(descriptor);
    ::close(descriptor);
  }
}

// The newest `blocks` blocks that are right, oldest first. Where all have room nothing is read: copying finds out.
Result<std::vector<DiskEntry>> choose(const DiskFile& from, const std::vector<DiskEntry>& entries, std::uint32_t blocks,
                                      const DiskProgress& progress, Compaction& done) {
  if (entries.size() <= blocks) {
    return entries;
  }
  std::vector<DiskEntry> chosen;  // newest first
  std::size_t left = entries.size();
  while (chosen.size() < blocks && left > 0) {
    const std::size_t count = std::min<std::size_t>(left, blocks - chosen.size());
    left -= count;
    CAIRN_TRY_ASSIGN(const DiskCheck check, check_blocks(from, std::span(entries).subspan(left, count), progress));
    done.wrong += check.wrong.size() + check.unreadable.size();
    chosen.insert(chosen.end(), check.right.rbegin(), check.right.rend());
  }
  done.left_out = left;
  std::reverse(chosen.begin(), chosen.end());
  return chosen;
}

Status copy_blocks(const DiskFile& from, const std::vector<DiskEntry>& entries, DiskFile& to,
                   const DiskProgress& progress, Compaction& done) {
  const NamespaceId space = from.geometry().space.id();
  std::vector<std::byte> block(from.geometry().block_bytes);
  std::vector<DiskEntry> copied;
  copied.reserve(entries.size());
  for (std::size_t i = 0; i < entries.size(); ++i) {
    DiskEntry entry = entries[i];
    // The bytes that are written are those that were judged, not others read a second time.
    if (!from.read_blocks(entry.block_id, block) ||
        checksum_of(from.geometry(), space, entry.key, block) != entry.checksum) {
      ++done.wrong;
    } else {
      entry.block_id = BlockId{static_cast<std::uint32_t>(copied.size())};
      CAIRN_TRY(to.write_blocks(entry.block_id, block));
      copied.push_back(entry);
    }
    if (progress && !progress(i + 1, entries.size())) {
      return fail(ErrorCode::kCancelled, str_cat("stopped; ", from.path(), " is as it was"));
    }
  }
  done.kept = copied.size();
  // Blocks before the entries that name them.
  Status status = to.sync();
  if (status) {
    status = to.put(copied);
  }
  return status ? to.sync() : status;
}

// The name of the new file: removed, however compact() ends, unless the file took the place of the old one.
class Unfinished {
 public:
  explicit Unfinished(std::string name) : name_(std::move(name)) {}
  Unfinished(const Unfinished&) = delete;
  Unfinished& operator=(const Unfinished&) = delete;
  ~Unfinished() {
    if (!is_done_) {
      ::unlink(name_.c_str());
    }
  }
  [[nodiscard]] Status take_place_of(const std::string& path) {
    if (std::rename(name_.c_str(), path.c_str()) != 0) {
      return fail(ErrorCode::kIo, str_cat("cannot put ", name_, " in the place of ", path, ": ", std::strerror(errno)));
    }
    is_done_ = true;
    return {};
  }

 private:
  const std::string name_;
  bool is_done_ = false;
};

}  // namespace

Result<Compaction> compact(const std::string& given, std::optional<std::uint32_t> blocks,
                           const DiskProgress& progress) {
  // A symbolic link stays: the file that it names is replaced.
  std::error_code none;
  const std::filesystem::path real = std::filesystem::canonical(given, none);
  const std::string path = real.empty() ? given : real.string();
  Result<DiskFile> from = DiskFile::inspect(path);  // and locked until the new one has its name
  if (!from) {
    return Unexpected(std::move(from).error());
  }
  if (!from->geometry().has_blocks()) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path,
                        " has entries only: its blocks are in the files of the ranks beside it, in places that "
                        "cannot change; `cairn disk reshard` rewrites those files"));
  }
  if (is_rank_file(*from)) {
    return fail(
        ErrorCode::kFailedPrecondition,
        str_cat(path, " holds the part of one rank: which of its blocks are right is known to the leader's file, ",
                leader_of(*from)));
  }
  CAIRN_TRY_ASSIGN(const DiskRecovery recovery, from->recover());
  DiskGeometry geometry = from->geometry();
  geometry.blocks = blocks.value_or(geometry.blocks);
  Compaction done{.old_bytes = from->file_bytes(), .blocks = geometry.blocks};
  const Result<std::vector<DiskEntry>> entries = choose(*from, recovery.entries, geometry.blocks, progress, done);
  CAIRN_TRY_ASSIGN(const std::string name,
                   entries ? take_name(path) : Result<std::string>(Unexpected(Error(entries.error()))));
  CAIRN_TRY_ASSIGN(DiskFile to, DiskFile::create(name, geometry));
  Unfinished unfinished(name);
  done.new_bytes = to.file_bytes();
  Status status = copy_blocks(*from, *entries, to, progress, done);
  if (status) {
    // The new file has the same permissions as the old one.
    status = to.take_rights_of(*from);
  }
  if (status) {
    {
      const DiskFile closed = std::move(to);  // and marked as such
    }
    status = unfinished.take_place_of(path);
  }
  if (!status) {
    return Unexpected(Error(status.error()));
  }
  sync_folder_of(path);
  return done;
}

}  // namespace cairn
