#include "python/src/wakeups.h"

#include <nanobind/stl/vector.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "cairn/base/str_cat.h"
#include "python/src/binding.h"

namespace cairn::python {

Wakeups::Wakeups() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) {
    raise(ErrorCode::kIo, str_cat("cannot make an eventfd: ", std::strerror(errno)));
  }
}

Wakeups::~Wakeups() { ::close(fd_); }

void Wakeups::post(std::uint64_t number) {
  const std::scoped_lock lock(mutex_);
  posted_.push_back(number);
  const std::uint64_t one = 1;
  static_cast<void>(::write(fd_, &one, sizeof(one)));  // fails only if the counter is full: then it is readable
}

std::vector<std::uint64_t> Wakeups::take() {
  const std::scoped_lock lock(mutex_);
  std::uint64_t count = 0;
  static_cast<void>(::read(fd_, &count, sizeof(count)));
  return std::exchange(posted_, {});
}

void bind_wakeups(nb::module_& module) {
  nb::class_<WakeupsHandle>(module, "_Wakeups")
      .def(nb::init<>())
      .def("fileno", [](const WakeupsHandle& self) { return self.wakeups->fd(); })
      .def("take", [](const WakeupsHandle& self) { return self.wakeups->take(); });
}

}  // namespace cairn::python
