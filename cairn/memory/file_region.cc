#include "cairn/memory/file_region.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string_view>
#include <utility>

#include "cairn/base/str_cat.h"
#include "cairn/memory/direct_io.h"
#include "cairn/memory/host_limits.h"
#include "cairn/memory/host_text.h"
#include "cairn/memory/preallocate.h"

namespace cairn {

namespace {

ErrorCode code_of(int error) {
  switch (error) {
    case ENOENT:
      return ErrorCode::kNotFound;
    case EEXIST:
      return ErrorCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
      return ErrorCode::kExhausted;
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
      return ErrorCode::kInvalidArgument;
    case EACCES:
    case EPERM:
    case EROFS:
      return ErrorCode::kFailedPrecondition;
    default:
      return ErrorCode::kIo;
  }
}

std::string_view remedy(int error) {
  switch (error) {
    case ENOENT:
      return "; make its directory first, or create the file instead of opening it";
    case EEXIST:
      return "; open it instead, remove it, or name another";
    case EACCES:
    case EPERM:
      return "; give this user the right to read and write there, or name another directory";
    case EROFS:
      return "; name a directory of a file system that is mounted for writing";
    case EMFILE:
      return "; raise RLIMIT_NOFILE (ulimit -n)";
    case EDQUOT:
      return "; raise the quota, or ask for less";
    case ENOTDIR:
    case EISDIR:
      return "; name a file in an existing directory";
    default:
      return "";
  }
}

Unexpected<Error> failed(std::string_view doing, const std::string& path, int error) {
  return fail(code_of(error), str_cat(doing, " ", path, ": ", errno_text(error), remedy(error)));
}

// A file that is not a region yet: closed, and removed if it was created here, unless it is released.
class OpenFile {
 public:
  OpenFile(int descriptor, std::string path, FileOpening opening)
      : descriptor_(descriptor), path_(std::move(path)), created_(opening == FileOpening::kCreate) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() {
    if (descriptor_ != kNoFile) {
      if (created_) {
        unlink(path_.c_str());
      }
      close(descriptor_);
    }
  }
  [[nodiscard]] int descriptor() const { return descriptor_; }
  int release() { return std::exchange(descriptor_, kNoFile); }

 private:
  int descriptor_;
  std::string path_;
  bool created_;
};

// Checked before reserving: a file system that reserves until it is full hurts all its users.
Status check_room(const FileRegionOptions& options, int descriptor, std::uint64_t missing) {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && options.size > limit.rlim_cur) {
    // Writing beyond the limit raises a signal that ends the process.
    return fail(ErrorCode::kExhausted,
                str_cat("reserving ", bytes_text(options.size), " for ", options.path, ": RLIMIT_FSIZE is ",
                        bytes_text(limit.rlim_cur), "; raise it (ulimit -f) or ask for less"));
  }
  struct statfs type{};
  if (fstatfs(descriptor, &type) == 0 && (type.f_type == TMPFS_MAGIC || type.f_type == RAMFS_MAGIC)) {
    if (Status status = HostLimits(options.machine_root).check_memory(missing); !status) {
      return fail(status.error().code,
                  str_cat("reserving ", options.path, ", which is in memory: ", status.error().message));
    }
  }
  struct statvfs space{};
  if (fstatvfs(descriptor, &space) == 0 && space.f_blocks > 0) {
    const std::uint64_t free = std::uint64_t{space.f_bavail} * space.f_frsize;
    if (missing > free) {
      return fail(ErrorCode::kExhausted,
                  str_cat("reserving ", bytes_text(options.size), " for ", options.path, ": its file system has ",
                          bytes_text(free), " free of the ", bytes_text(missing),
                          " that are missing; free some, ask for less, or name another disk"));
    }
  }
  return {};
}

Status reserve_space(const FileRegionOptions& options, int descriptor, std::string& notes) {
  const Preallocated done = preallocate(descriptor, options.size);
  if (done.error != 0) {
    return failed(str_cat("reserving ", bytes_text(options.size), " for"), options.path, done.error);
  }
  if (!done.is_reserved) {
    add_note(notes, kNotReserved);
  }
  return {};
}

// Turns direct I/O on, if it works.
DirectIo make_direct(const FileRegionOptions& options, int descriptor) {
  const int flags = fcntl(descriptor, F_GETFL);
  if (fcntl(descriptor, F_SETFL, flags | O_DIRECT) != 0) {
    return {.why_not = errno == EINVAL ? "the file system has no direct I/O" : errno_text(errno)};
  }
  DirectIo direct =
      probe_direct_io(descriptor, options.size,
                      options.opening == FileOpening::kCreate ? DirectProbe::kMayWrite : DirectProbe::kReadOnly);
  if (!direct.works) {
    fcntl(descriptor, F_SETFL, flags);
  }
  return direct;
}

void remove_if_same(const std::string& path, int descriptor) {
  struct stat ours{};
  struct stat there{};
  if (fstat(descriptor, &ours) == 0 && lstat(path.c_str(), &there) == 0 && ours.st_dev == there.st_dev &&
      ours.st_ino == there.st_ino) {
    unlink(path.c_str());
  }
}

Status check_options(const FileRegionOptions& options) {
  if (options.path.empty()) {
    return fail(ErrorCode::kInvalidArgument, "a file without a name was requested; give its path");
  }
  if (options.size == 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("a file of 0 bytes was requested at ", options.path, "; give its size"));
  }
  if (options.size > static_cast<std::uint64_t>(std::numeric_limits<off_t>::max())) {
    return fail(ErrorCode::kInvalidArgument, str_cat(options.path, ": a file cannot have ", bytes_text(options.size)));
  }
  return {};
}

}  // namespace

Result<RegionPtr> file_region(const FileRegionOptions& options) {
  CAIRN_TRY(check_options(options));
  const bool create = options.opening == FileOpening::kCreate;
  // O_NONBLOCK while opening: a pipe that is named by mistake must not wait for its other end.
  const int descriptor = open(options.path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | (create ? O_CREAT | O_EXCL : 0),
                              static_cast<mode_t>(options.permissions));
  if (descriptor < 0) {
    return failed(create ? "creating" : "opening", options.path, errno);
  }
  OpenFile file(descriptor, options.path, options.opening);
  struct stat facts{};
  if (fstat(descriptor, &facts) != 0) {
    return failed("looking at", options.path, errno);
  }
  if (!S_ISREG(facts.st_mode)) {
    return fail(ErrorCode::kInvalidArgument, str_cat(options.path, " is not a regular file; name one"));
  }
  // Without O_NONBLOCK from here on: io_uring would fail reads that have to wait.
  if (fcntl(descriptor, F_SETFL, fcntl(descriptor, F_GETFL) & ~O_NONBLOCK) != 0) {
    return failed("setting up", options.path, errno);
  }
  if (!create && static_cast<std::uint64_t>(facts.st_size) != options.size) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(options.path, " has ", bytes_text(static_cast<std::uint64_t>(facts.st_size)), " where ",
                        bytes_text(options.size),
                        " were expected: it was cut short, or made with other settings; "
                        "remove it, or give the size it was made with"));
  }
  std::string notes;
  const std::uint64_t there = std::min(static_cast<std::uint64_t>(facts.st_blocks) * 512, options.size);
  CAIRN_TRY(check_room(options, descriptor, options.size - there));
  CAIRN_TRY(reserve_space(options, descriptor, notes));
  DirectIo direct;
  if (options.direct) {
    direct = make_direct(options, descriptor);
    if (!direct.works) {
      add_note(notes, str_cat("buffered, through the page cache: ", direct.why_not));
    }
  }
  file.release();
  return std::make_shared<const Region>(RegionFacts{.kind = MemoryKind::kFile,
                                                    .size = options.size,
                                                    .alignment = direct.alignment,
                                                    .file = descriptor,
                                                    .direct = direct.works,
                                                    .notes = std::move(notes)},
                                        [descriptor, path = options.remove_on_release ? options.path : std::string()] {
                                          if (!path.empty()) {
                                            remove_if_same(path, descriptor);
                                          }
                                          close(descriptor);
                                        });
}

Result<RegionPtr> external_file_region(ExternalFile file) {
  if (file.size == 0) {
    return fail(ErrorCode::kInvalidArgument, "an external file of 0 bytes was given; give its size");
  }
  struct stat facts{};
  const int flags = fcntl(file.descriptor, F_GETFL);
  if (flags < 0 || fstat(file.descriptor, &facts) != 0) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("an external file by descriptor ", file.descriptor, ": ", errno_text(errno)));
  }
  if ((flags & O_ACCMODE) != O_RDWR) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("descriptor ", file.descriptor, " is not open for reading and writing; open it with O_RDWR"));
  }
  if (!S_ISREG(facts.st_mode) && !S_ISBLK(facts.st_mode)) {
    return fail(ErrorCode::kInvalidArgument,
                str_cat("descriptor ", file.descriptor, " is neither a regular file nor a block device"));
  }
  if (S_ISREG(facts.st_mode) && static_cast<std::uint64_t>(facts.st_size) < file.size) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat("descriptor ", file.descriptor, " has ", bytes_text(static_cast<std::uint64_t>(facts.st_size)),
                        ", and ", bytes_text(file.size), " were named; extend the file first"));
  }
  RegionFacts region = {.kind = MemoryKind::kFile, .size = file.size, .file = file.descriptor, .external = true};
  if ((flags & O_DIRECT) != 0) {
    const DirectIo direct = probe_direct_io(file.descriptor, file.size, DirectProbe::kReadOnly);
    if (!direct.works) {
      // The flag belongs to the owner of the descriptor. If it stays on, every read fails.
      return fail(ErrorCode::kFailedPrecondition,
                  str_cat("descriptor ", file.descriptor, " is open for direct I/O, and ", direct.why_not,
                          "; open it without O_DIRECT"));
    }
    region.direct = true;
    region.alignment = direct.alignment;
  }
  return std::make_shared<const Region>(std::move(region),
                                        [keep_alive = std::move(file.keep_alive)]() mutable { keep_alive.reset(); });
}

}  // namespace cairn
