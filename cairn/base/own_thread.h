// Threads of Cairn's own: every one is started here.
//
// An exception that reaches the end of such a thread ends the process with a message that names the thread. In practice that
// is memory that could not be had in the middle of a change that has no way back: nobody is left to return an error to, and
// to go on would serve blocks that nobody can vouch for.
//
// Thread safety: start_own_thread() and is_own_thread() may be called from any thread.
#pragma once

#include <exception>
#include <thread>
#include <utility>

namespace cairn {

namespace internal {

[[noreturn]] void own_thread_failed(const char* name, const char* what) noexcept;
void begin_own_thread(const char* name) noexcept;

}  // namespace internal

// `name` is what debuggers and the message show: a literal of at most 15 characters. Throws std::system_error if the system
// gives no more threads, as std::thread does.
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

// Whether the calling thread was started by start_own_thread(). Callbacks of Cairn run on such threads: whoever would wait
// for one there has to let another thread do it.
[[nodiscard]] bool is_own_thread() noexcept;

}  // namespace cairn
