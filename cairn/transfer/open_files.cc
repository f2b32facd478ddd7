#include "cairn/transfer/open_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include "cairn/base/str_cat.h"

namespace cairn {

std::string file_name(int descriptor) {
  std::array<char, 4096> path{};
  const ssize_t length = readlink(str_cat("/proc/self/fd/", descriptor).c_str(), path.data(), path.size());
  return length > 0 ? std::string(path.data(), static_cast<std::size_t>(length)) : str_cat("descriptor ", descriptor);
}

OpenFiles::~OpenFiles() {
  for (File& file : files_) {
    remove(file);
  }
  for (const Memory& memory : memory_) {
    backend_.remove_memory(memory.base);
  }
}

void OpenFiles::remove(File& file) {
  if (file.number != kNotAdded) {
    backend_.remove_file(file.number);
  }
  if (file.buffered_number != kNotAdded) {
    backend_.remove_file(file.buffered_number);
    close(file.buffered_descriptor);
  }
}

OpenFiles::File& OpenFiles::entry(const RegionPtr& region) {
  // Few regions are in use at once. An entry of a region that is gone may have the address of a new one: it is removed
  // by forget_gone() before that one is used.
  const auto found = std::ranges::find(files_, region.get(), &File::key);
  if (found != files_.end()) {
    return *found;
  }
  files_.emplace_back();
  files_.back().key = region.get();
  files_.back().region = region;
  return files_.back();
}

std::uint32_t OpenFiles::own_file(const RegionPtr& region) {
  File& known = entry(region);
  if (known.number == kNotAdded) {
    known.number = backend_.add_file(region->file());
  }
  return known.number;
}

Result<OpenFiles::Handle> OpenFiles::file(const RegionPtr& region, Access access) {
  File& known = entry(region);
  if (!region->is_direct() || (access == Access::kWholePages && known.buffered_why.empty())) {
    return Handle{.number = own_file(region), .direct = region->is_direct()};
  }
  if (known.buffered_number == kNotAdded) {
    const int flags = fcntl(region->file(), F_GETFL);
    const int descriptor =
        flags < 0 ? kNoFile : open(str_cat("/proc/self/fd/", region->file()).c_str(), (flags & O_ACCMODE) | O_CLOEXEC);
    if (descriptor < 0) {
      return fail(ErrorCode::kIo, str_cat("opening ", file_name(region->file()),
                                          " once more, for buffered I/O: ", std::generic_category().message(errno)));
    }
    known.buffered_descriptor = descriptor;
    known.buffered_number = backend_.add_file(descriptor);
  }
  return Handle{.number = known.buffered_number, .direct = false};
}

void OpenFiles::use_buffered(const RegionPtr& region, const std::string& why) {
  File& known = entry(region);
  if (known.buffered_why.empty()) {
    known.buffered_why = why;
  }
}

void OpenFiles::use_memory(const RegionPtr& region) {
  const auto overlaps = [&region](const Memory& memory) {
    return region->base() < memory.base + memory.size && memory.base < region->base() + region->size();
  };
  // Memory that two regions describe is registered for the one that came first; the other works without, or with it.
  if (region->size() == 0 || std::ranges::any_of(memory_, overlaps)) {
    return;
  }
  backend_.add_memory(region->base(), region->size());
  memory_.push_back({.region = region, .base = region->base(), .size = region->size()});
}

void OpenFiles::forget_gone() {
  std::erase_if(files_, [this](File& file) {
    const bool gone = file.region.expired();
    if (gone) {
      remove(file);
    }
    return gone;
  });
  std::erase_if(memory_, [this](const Memory& memory) {
    const bool gone = memory.region.expired();
    if (gone) {
      backend_.remove_memory(memory.base);
    }
    return gone;
  });
}

std::string OpenFiles::describe() const {
  std::size_t direct = 0;
  std::size_t buffered = 0;
  std::string why;
  for (const File& file : files_) {
    const RegionPtr region = file.region.lock();
    if (region == nullptr) {
      continue;
    }
    if (region->is_direct() && file.buffered_why.empty()) {
      ++direct;
      continue;
    }
    ++buffered;
    if (why.empty()) {
      why = region->is_direct() ? file.buffered_why : region->notes();
    }
  }
  std::string out;
  if (direct > 0) {
    out = str_cat(direct, direct == 1 ? " file direct" : " files direct");
  }
  if (buffered > 0) {
    out += str_cat(out.empty() ? "" : ", ", buffered, buffered == 1 ? " file buffered" : " files buffered",
                   why.empty() ? "" : ": ", why);
  }
  return out.empty() ? "no file used yet" : out;
}

}  // namespace cairn
