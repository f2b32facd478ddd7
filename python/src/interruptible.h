// Runs long work of its own in another thread, so that Ctrl-C reaches the thread that waits for it.
#pragma once

#include <atomic>
#include <chrono>
#include <future>

#include "python/src/binding.h"

namespace cairn::python {

// Calls work(stop) without the GIL and returns what it returns. If a signal handler raises meanwhile, `stop` is set, and the
// exception is raised when the work has ended. `work` must not touch Python.
template <typename Work>
auto run_interruptibly(Work work) {
  constexpr auto kBetweenChecks = std::chrono::milliseconds(50);
  std::atomic<bool> stop{false};
  auto outcome = std::async(std::launch::async, [&] { return work(std::as_const(stop)); });
  bool interrupted = false;
  while (true) {
    std::future_status status{};
    {
      const GilRelease released;
      status = outcome.wait_for(interrupted ? std::chrono::hours(1) : kBetweenChecks);
    }
    if (status == std::future_status::ready) {
      break;
    }
    if (!interrupted && PyErr_CheckSignals() != 0) {
      interrupted = true;
      stop = true;
      // The exception stays set: nothing below calls Python until it is raised.
    }
  }
  if (interrupted) {
    throw nb::python_error();
  }
  return outcome.get();
}

}  // namespace cairn::python
