// What all bindings share: errors become exceptions, and objects with threads or locks stay in the process that made them.
//
// A binding holds the GIL unless the call can block or takes more than a few microseconds; then it releases it
// (GilRelease), and touches no Python object meanwhile. Threads of Cairn never take the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cairn/base/result.h"

namespace cairn::python {

namespace nb = nanobind;

// Each adds its part of the API to the module.
void bind_errors(nb::module_& module);
void bind_allocator(nb::module_& module);
void bind_probes(nb::module_& module);
void bind_trace(nb::module_& module);

// Raises the exception of the error: cairn.Error, or the subclass for its code.
[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise(ErrorCode code, std::string message);

// The value, or the exception.
template <typename T>
T value_or_raise(Result<T>&& result) {
  if (!result) {
    raise(result.error());
  }
  return *std::move(result);
}
inline void check(const Status& status) {
  if (!status) {
    raise(status.error());
  }
}

// Releases the GIL for a call of Cairn that may take long. At the end of the interpreter, Python ends a thread that takes the
// GIL, in the middle of C++, which aborts the process: Closable::close_all() waits for the threads in such calls, and then
// calls keep the GIL.
class GilRelease {
 public:
  GilRelease() {
    if (!is_ended_) {
      released_.emplace();
    }
  }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

  // Whether a thread is in such a call, or waits for the GIL after it. Requires: the GIL.
  [[nodiscard]] static bool is_any() { return count_ != 0; }
  // From now on no call releases the GIL. Requires: the GIL.
  static void end() { is_ended_ = true; }

 private:
  struct Count {
    Count() { ++count_; }
    ~Count() { --count_; }
  };
  static inline bool is_ended_ = false;  // guarded by the GIL
  static inline std::atomic<std::uint32_t> count_{0};
  Count counted_;  // until the GIL is taken again
  std::optional<nb::gil_scoped_release> released_;
};

// The same if the call takes long.
class ReleaseGilIf {
 public:
  explicit ReleaseGilIf(bool takes_long) {
    if (takes_long) {
      released_.emplace();
    }
  }

 private:
  std::optional<GilRelease> released_;
};

// How often this process was forked off since Python was started: 0, or 1 in a child, 2 in its child.
[[nodiscard]] std::uint64_t forks();

// A value that belongs to the process that made it: its threads are not in a forked child, and its locks may be taken there.
// A child that uses it gets an exception. A child that drops it leaks it.
template <typename T>
class OfProcess {
 public:
  template <typename... Arguments>
  explicit OfProcess(Arguments&&... arguments) : value_(std::make_unique<T>(std::forward<Arguments>(arguments)...)) {}
  OfProcess(OfProcess&&) noexcept = default;
  OfProcess& operator=(OfProcess&&) = delete;
  ~OfProcess() {
    if (made_in_ != forks()) {
      static_cast<void>(value_.release());
    }
  }

  [[nodiscard]] T& get() const {
    if (made_in_ != forks()) {
      raise(ErrorCode::kFailedPrecondition,
            "this object was made before a fork and belongs to the parent process; make a new one in the child");
    }
    if (value_ == nullptr) {
      raise(ErrorCode::kFailedPrecondition, "this object is closed");
    }
    return *value_;
  }
  [[nodiscard]] bool is_closed() const { return value_ == nullptr; }
  [[nodiscard]] bool is_of_this_process() const { return made_in_ == forks(); }
  // Takes the value; the object is closed then.
  [[nodiscard]] std::unique_ptr<T> close() {
    if (value_ != nullptr) {
      static_cast<void>(get());
    }
    return std::move(value_);
  }

 private:
  std::unique_ptr<T> value_;
  std::uint64_t made_in_ = forks();
};

}  // namespace cairn::python
