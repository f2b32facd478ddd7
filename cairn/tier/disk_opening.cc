#include "cairn/tier/disk_opening.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "cairn/base/str_cat.h"
#include "cairn/tier/disk_format.h"
#include "cairn/tier/disk_lock.h"

namespace cairn {

namespace {

// How far a file is searched for entries that show whose it is.
constexpr std::size_t kSearchedBytes = disk::kEntriesOffset + 16'384 * disk::kEntryBytes;

struct Freed {
  void operator()(char* text) const { std::free(text); }
};

// A file that is open and locked until this is gone.
class Locked {
 public:
  explicit Locked(int descriptor) : descriptor_(descriptor) {}
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;
  ~Locked() { ::close(descriptor_); }

  [[nodiscard]] std::uint64_t size() const {
    struct stat facts{};
    return fstat(descriptor_, &facts) == 0 ? static_cast<std::uint64_t>(facts.st_size) : 0;
  }
  // Of its first bytes; bytes that cannot be read count as missing.
  [[nodiscard]] std::vector<std::byte> beginning() const {
    std::vector<std::byte> bytes(kSearchedBytes);
    std::size_t read = 0;
    while (read < bytes.size()) {
      const ssize_t count = pread(descriptor_, bytes.data() + read, bytes.size() - read, static_cast<off_t>(read));
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count <= 0) {
        break;
      }
      read += static_cast<std::size_t>(count);
    }
    bytes.resize(read);
    return bytes;
  }

 private:
  int descriptor_;
};

// Whether anything says that the file is what is left of a disk tier: half a superblock, one entry, its size, or that
// nothing was ever written to it. Others are not touched.
bool shows_signs(const Locked& file, const DiskGeometry& geometry) {
  const std::vector<std::byte> bytes = file.beginning();
  const std::optional<DiskPlaces> places = geometry.places();
  const std::span<const std::byte> head =
      std::span(bytes).first(std::min<std::size_t>(bytes.size(), disk::kEntriesOffset));
  if ((places && places->file_bytes == file.size()) ||
      std::all_of(head.begin(), head.end(), [](std::byte byte) { return byte == std::byte{0}; })) {
    return true;
  }
  for (const std::size_t at : {std::size_t{0}, disk::kSuperblockBytes}) {
    if (at < bytes.size() && disk::begins_as_superblock(std::span(bytes).subspan(at))) {
      return true;
    }
  }
  for (std::size_t at = disk::kEntriesOffset; at + disk::kEntryBytes <= bytes.size(); at += disk::kEntryBytes) {
    if (disk::is_entry(
            std::span<const std::byte, disk::kEntryBytes>(std::span(bytes).subspan(at, disk::kEntryBytes)))) {
      return true;
    }
  }
  return false;
}

Unexpected<Error> not_ours(const std::string& path) {
  return fail(ErrorCode::kCorrupt, str_cat(path,
                                           " is not the file of a disk tier, and nothing in it looks as if it had "
                                           "been one; give another path, or remove it"));
}

// Under a lock, so that nobody uses what is removed.
Status remove_ours(const std::string& path, const DiskGeometry& geometry) {
  CAIRN_TRY_ASSIGN(const int opened, disk::open_locked(path, disk::Access::kRead));
  const Locked file(opened);
  if (!shows_signs(file, geometry)) {
    return not_ours(path);
  }
  return ::unlink(path.c_str()) == 0 ? Status() : Unexpected(disk::file_error("remove", path, errno));
}

// The damaged file goes out of the way; an empty one takes its place.
Result<OpenedDisk> start_empty(const std::string& path, const DiskGeometry& geometry, const Error& why) {
  const std::string aside = path + ".damaged";
  bool is_kept = false;
  {
    CAIRN_TRY_ASSIGN(const int opened, disk::open_locked(path, disk::Access::kRead));
    const Locked file(opened);
    if (!shows_signs(file, geometry)) {
      return not_ours(path);
    }
    // link() never replaces an existing file.
    is_kept = ::link(path.c_str(), aside.c_str()) == 0;
    if (!is_kept && errno != EEXIST) {
      return Unexpected(disk::file_error("rename (to PATH.damaged)", path, errno));
    }
    if (::unlink(path.c_str()) != 0) {
      return Unexpected(disk::file_error("remove", path, errno));
    }
  }
  std::string became =
      is_kept ? str_cat("renamed to ", aside) : str_cat("removed, because ", aside, " is there already");
  Result<DiskFile> made = DiskFile::create(path, geometry);
  if (!made && made.error().code == ErrorCode::kExhausted && is_kept) {
    ::unlink(aside.c_str());
    became = "removed, because there is no room for it beside a new one";
    made = DiskFile::create(path, geometry);
  }
  if (!made) {
    return Unexpected(std::move(made).error());
  }
  return OpenedDisk{*std::move(made), str_cat(why.message, "; it was ", became, ", and the tier starts empty")};
}

Result<OpenedDisk> as_it_is(Result<DiskFile> file) {
  return file ? Result<OpenedDisk>(OpenedDisk{*std::move(file)}) : Unexpected(std::move(file).error());
}

}  // namespace

Result<OpenedDisk> open_disk(const std::string& given, const DiskGeometry& geometry, DiskOpening opening) {
  const std::unique_ptr<char, Freed> real(::realpath(given.c_str(), nullptr));
  if (real == nullptr && errno != ENOENT) {
    return Unexpected(disk::file_error("open", given, errno));
  }
  if (real == nullptr) {
    return as_it_is(opening == DiskOpening::kExisting ? DiskFile::open(given, geometry)
                                                      : DiskFile::create(given, geometry));
  }
  const std::string path = real.get();
  switch (opening) {
    case DiskOpening::kExisting:
      return as_it_is(DiskFile::open(path, geometry));
    case DiskOpening::kFresh:
      CAIRN_TRY(remove_ours(path, geometry));
      return as_it_is(DiskFile::create(path, geometry));
    case DiskOpening::kReuse:
      break;
  }
  Result<DiskFile> file = DiskFile::open(path, geometry, OnDamage::kRepair);
  if (!file) {
    return file.error().code == ErrorCode::kCorrupt ? start_empty(path, geometry, file.error())
                                                    : Result<OpenedDisk>(Unexpected(std::move(file).error()));
  }
  std::string damage;
  if (file->found_bytes() != file->file_bytes()) {
    damage = str_cat(path, file->found_bytes() < file->file_bytes() ? " was cut off: it has " : " is too long: it has ",
                     file->found_bytes(), " bytes of ", file->file_bytes(),
                     "; what it holds of its blocks is used, the rest of it is empty");
  }
  return OpenedDisk{*std::move(file), std::move(damage)};
}

}  // namespace cairn
