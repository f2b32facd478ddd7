#include "cairn/tier/disk_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "cairn/base/str_cat.h"

namespace cairn::disk {

namespace {

// Closed unless it is released.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (number_ != -1) {
      ::close(number_);
    }
  }
  [[nodiscard]] int get() const { return number_; }
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

Status lock(int descriptor, const std::string& path) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) {
    return {};
  }
  if (errno != EWOULDBLOCK) {
    return Unexpected(file_error("lock", path, errno));
  }
  return fail(ErrorCode::kFailedPrecondition,
              str_cat(path,
                      " is in use by another process; stop that one first, or use another file: two engines do not "
                      "share one, and neither do the data parallel ranks of an engine (such as ",
                      path, ".dp0 and ", path, ".dp1)"));
}

// Another process may have put another file in its place before this one had the lock.
Status check_name(int descriptor, const std::string& path, int (*look)(const char*, struct stat*)) {
  struct stat opened{};
  struct stat named{};
  if (fstat(descriptor, &opened) != 0 || look(path.c_str(), &named) != 0 || named.st_ino != opened.st_ino ||
      named.st_dev != opened.st_dev) {
    return fail(ErrorCode::kFailedPrecondition, str_cat(path, " was replaced while it was opened; try again"));
  }
  return {};
}

Unexpected<Error> no_regular_file(const std::string& path) {
  return fail(ErrorCode::kInvalidArgument,
              str_cat(path, " is no file but a folder or a device; give the path of a file"));
}

// What a process that was killed left there. Only a name is removed, and only that of a regular file of this user.
Status remove_left_over(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (file.get() == -1) {
    if (errno == ENOENT) {
      return {};
    }
    return errno == ELOOP
               ? fail(ErrorCode::kInvalidArgument,
                      str_cat(path, " is a symbolic link, and Cairn does not write through links there; remove it"))
               : Unexpected(file_error("open", path, errno));
  }
  struct stat facts{};
  if (fstat(file.get(), &facts) != 0) {
    return Unexpected(file_error("look at", path, errno));
  }
  if (!S_ISREG(facts.st_mode)) {
    return no_regular_file(path);
  }
  if (facts.st_uid != geteuid()) {
    return fail(ErrorCode::kFailedPrecondition,
                str_cat(path, " belongs to user ", facts.st_uid, ", not to this process's user ", geteuid(),
                        ", and is in the way of a new file; remove it"));
  }
  CAIRN_TRY(lock(file.get(), path));
  CAIRN_TRY(check_name(file.get(), path, &::lstat));
  return ::unlink(path.c_str()) == 0 ? Status() : Unexpected(file_error("remove", path, errno));
}

}  // namespace

Error file_error(const char* what, const std::string& path, int number) {
  const ErrorCode code = number == ENOSPC || number == EDQUOT ? ErrorCode::kExhausted
                         : number == ENOENT                   ? ErrorCode::kNotFound
                         : number == EEXIST                   ? ErrorCode::kAlreadyExists
                                                              : ErrorCode::kIo;
  return {code, str_cat("cannot ", what, " ", path, ": ", std::strerror(number))};
}

Result<int> open_locked(const std::string& path, Access access) {
  // Non-blocking: a pipe by that name is refused, not waited for.
  Descriptor file(::open(path.c_str(), (access == Access::kWrite ? O_RDWR : O_RDONLY) | O_CLOEXEC | O_NONBLOCK));
  if (file.get() == -1) {
    return Unexpected(file_error("open", path, errno));
  }
  struct stat facts{};
  if (fstat(file.get(), &facts) != 0) {
    return Unexpected(file_error("look at", path, errno));
  }
  if (!S_ISREG(facts.st_mode)) {
    return no_regular_file(path);
  }
  CAIRN_TRY(lock(file.get(), path));
  CAIRN_TRY(check_name(file.get(), path, &::stat));
  return file.release();
}

Result<int> open_shared(const std::string& path, std::uint32_t seat) {
  Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (file.get() == -1) {
    return Unexpected(file_error("open", path, errno));
  }
  struct stat facts{};
  if (fstat(file.get(), &facts) != 0) {
    return Unexpected(file_error("look at", path, errno));
  }
  if (!S_ISREG(facts.st_mode)) {
    return no_regular_file(path);
  }
  // One byte for each seat, beyond all that a file has.
  constexpr off_t kFirstSeat = off_t{1} << 62;
  struct flock range{};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = kFirstSeat + static_cast<off_t>(seat);
  range.l_len = 1;
  if (fcntl(file.get(), F_OFD_SETLK, &range) == 0) {
    return file.release();
  }
  if (errno != EAGAIN && errno != EACCES) {
    return Unexpected(file_error("lock", path, errno));
  }
  return fail(ErrorCode::kFailedPrecondition,
              str_cat(path, " is in use by the process that this one replaces; stop that one first"));
}

Result<int> create_locked(const std::string& path) {
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;
  int number = ::open(path.c_str(), kFlags, 0600);
  if (number == -1 && errno == EEXIST) {
    CAIRN_TRY(remove_left_over(path));
    number = ::open(path.c_str(), kFlags, 0600);
  }
  if (number == -1) {
    return Unexpected(file_error("create", path, errno));
  }
  Descriptor file(number);
  CAIRN_TRY(lock(file.get(), path));
  CAIRN_TRY(check_name(file.get(), path, &::lstat));
  return file.release();
}

}  // namespace cairn::disk
