// start_own_thread(): starts every thread that Cairn runs by itself.
//
// If an exception leaves such a thread, the process ends with a message that names the thread. In practice the
// exception is an allocation that failed in the middle of a change: no caller can get an error, and continuing could
// serve wrong blocks.
//
// Thread safety: safe from any thread.
#pragma once

#include <exception>
#include <thread>
#include <utility>

namespace cairn {

namespace internal {

[[noreturn]] void own_thread_failed(const char* name, const char* what) noexcept;
void begin_own_thread(const char* name) noexcept;

}  // namespace internal

// `name` is shown by debuggers and in the message: a literal of at most 15 characters. Like std::thread, throws
// std::system_error if the system has no more threads.
template <typename Body>
[[nodiscard]] std::thread start_own_thread(const char* name, Body body) {
  return std::thread([name, body = std::move(body)]() mutable {
    internal::begin_own_thread(name);
    try {
      body();
    } catch (const std::exception& thrown) {
      internal::own_thread_failed(name, thrown.what());
    } catch (...) {
      internal::own_thread_failed(name, "an unknown exception");
    }
  });
}

// Whether the calling thread was started by start_own_thread(). Callbacks run on such threads; code that would wait for
// one there must let another thread do the waiting.
[[nodiscard]] bool is_own_thread() noexcept;

}  // namespace cairn
