// CAIRN_CHECK: the one way this library aborts, and only for a broken invariant of its own.
//
// Bad input from outside (an engine, a file, a peer, a user) is never checked with these macros: it gets a Result with
// an Error. A failed check prints the place, the condition and the message on standard error and aborts.
#pragma once

#include <string_view>

namespace cairn::internal {

[[noreturn]] void check_failed(const char* file, int line, const char* condition, std::string_view message);

}  // namespace cairn::internal

// `message` names the invariant, in words: it is what the operator sees.
#define CAIRN_CHECK(condition, message)              \
  (__builtin_expect(static_cast<bool>(condition), 1) \
       ? static_cast<void>(0)                        \
       : ::cairn::internal::check_failed(__FILE__, __LINE__, #condition, (message)))

// The same on hot paths: active unless NDEBUG is set, as it is in the release preset.
#ifdef NDEBUG
#define CAIRN_DCHECK(condition, message) static_cast<void>(0)
#else
#define CAIRN_DCHECK(condition, message) CAIRN_CHECK(condition, message)
#endif
