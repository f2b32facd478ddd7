// Helpers of the functions of the C interface: they turn errors into codes, read and write structs of other versions, and let no
// exception through. Internal.
//
// Thread safety: all functions are pure.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/deadline.h"
#include "cairn/base/result.h"
#include "cairn/base/str_cat.h"
#include "cairn/capi/cairn_c.h"
#include "cairn/connector/request_id.h"
#include "cairn/layout/rank_grid.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"

namespace cairn::capi {

[[nodiscard]] int32_t code_of(ErrorCode code);

// Writes the code and as much of the message as fits to `error`, unless it is NULL. Returns the code.
int32_t report(cairn_error* error, int32_t code, std::string_view message);
inline int32_t report(cairn_error* error, const Error& what) { return report(error, code_of(what.code), what.message); }
// CAIRN_OK, or the code of the result's error, which it reports.
template <typename R>
int32_t outcome(const R& result, cairn_error* error) {
  return result.has_value() ? static_cast<int32_t>(CAIRN_OK) : report(error, result.error());
}

// Copies the caller's struct. Members beyond its struct_size are zero.
template <typename T>
[[nodiscard]] Result<T> read_struct(const T* from, const char* name) {
  if (from == nullptr || from->struct_size < sizeof(std::size_t)) {
    return fail(
        ErrorCode::kInvalidArgument,
        std::string(name) + (from == nullptr ? " is NULL" : " has no struct_size; initialize it with CAIRN_INIT"));
  }
  T to{};
  std::memcpy(&to, from, std::min(from->struct_size, sizeof(T)));
  return to;
}
// Copies `from` to the caller's struct, up to its struct_size.
template <typename T>
[[nodiscard]] Status write_struct(T* to, T from, const char* name) {
  if (to == nullptr || to->struct_size < sizeof(std::size_t)) {
    return fail(
        ErrorCode::kInvalidArgument,
        std::string(name) + (to == nullptr ? " is NULL" : " has no struct_size; initialize it with CAIRN_INIT"));
  }
  from.struct_size = to->struct_size;
  std::memcpy(to, &from, std::min(to->struct_size, sizeof(T)));
  return {};
}

// kInvalidArgument if `from` is NULL and `count` is not 0.
template <typename T>
[[nodiscard]] Result<std::span<const T>> read_array(const T* from, std::size_t count, const char* name) {
  if (from == nullptr && count != 0) {
    return fail(ErrorCode::kInvalidArgument, str_cat(name, " is NULL, but its count is ", count));
  }
  return std::span<const T>(from, count);
}
// Copies an array of structs; struct_size of the first one is the distance between them.
template <typename T>
[[nodiscard]] Result<std::vector<T>> read_structs(const T* first, std::size_t count, const char* name) {
  std::vector<T> all;
  if (count != 0 && first == nullptr) {
    return fail(ErrorCode::kInvalidArgument, str_cat(name, " is NULL, but its count is ", count));
  }
  all.reserve(count);
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  for (std::size_t i = 0; i < count; ++i) {
    CAIRN_TRY_ASSIGN(const T read, read_struct(reinterpret_cast<const T*>(bytes + i * first->struct_size), name));
    all.push_back(read);
  }
  return all;
}
// A cairn_prompt as the library takes it. Refers to the caller's strings and tokens.
struct Prompt {
  std::span<const Token> tokens;
  RequestSalt salt;
  std::vector<MmRun> mm_runs;
};
// The parts of a manager that options of a manager or scheduler give.
[[nodiscard]] ManagerParts read_parts(cairn_offload_filter filter, void* context, uint64_t limit_us);

[[nodiscard]] Result<Prompt> read_prompt(const cairn_prompt* prompt);
[[nodiscard]] Result<std::vector<MmRun>> read_mm_runs(const cairn_mm_run* first, std::size_t count);
[[nodiscard]] Result<std::vector<BlockKey>> read_keys(const cairn_key* keys, std::size_t count);
[[nodiscard]] Result<CacheLevel> read_level(std::uint32_t level);
[[nodiscard]] Result<RequestEnding> read_ending(std::uint32_t ending);
[[nodiscard]] Result<RetentionHint> read_hint(std::uint32_t hint, std::uint64_t return_ms);
// `ranks`: all of them; `pipeline`: their stages; 0 stands for 1.
[[nodiscard]] Result<RankGrid> read_grid(std::uint32_t ranks, std::uint32_t pipeline);

[[nodiscard]] inline std::string read_text(const char* text) { return text == nullptr ? std::string() : text; }

// Sets `limit` unless `given_ms` is 0. More milliseconds than a Duration holds become the longest Duration.
inline void set_limit(Duration& limit, std::uint64_t given_ms) {
  if (given_ms != 0) {
    limit = limited_ms(given_ms);
  }
}
// The id that the caller gave the request.
[[nodiscard]] inline std::string text_of(const RequestId& request) {
  return request.text() != nullptr ? *request.text() : request.to_string();
}

// Writes as much of `text` as fits, and a 0, as cairn_c.h says of output text. Returns the bytes written without the 0.
std::size_t write_text(std::string_view text, char* buffer, std::size_t capacity, std::size_t* needed);

// Runs `function`, which returns a Status or a code, and returns its code. No exception leaves: std::bad_alloc becomes
// CAIRN_EXHAUSTED. Every function of the interface runs in this or in guarded_or(), unless it only reads a number.
template <typename Function>
int32_t guarded(cairn_error* error, Function&& function) noexcept {
  try {
    if constexpr (std::is_same_v<std::invoke_result_t<Function>, Status>) {
      return outcome(function(), error);
    } else {
      return function();
    }
  } catch (const std::bad_alloc&) {
    return report(error, CAIRN_EXHAUSTED, "out of memory; free some and call again");
  } catch (const std::exception& thrown) {
    return report(error, CAIRN_EXHAUSTED, thrown.what());
  } catch (...) {
    return report(error, CAIRN_EXHAUSTED, "unknown exception");
  }
}
// For functions that return no code: returns `otherwise` if memory runs out.
template <typename Value, typename Function>
Value guarded_or(Value otherwise, Function&& function) noexcept {
  try {
    return function();
  } catch (...) {
    return otherwise;
  }
}
// Writes the text that `text_of` returns. If memory runs out, returns 0 and sets *needed to 0.
template <typename Function>
std::size_t guarded_text(char* buffer, std::size_t capacity, std::size_t* needed, Function&& text_of) noexcept {
  return guarded_or(std::size_t{0}, [&] {
    if (needed != nullptr) {
      *needed = 0;
    }
    return write_text(text_of(), buffer, capacity, needed);
  });
}

// Calls `reset`, which returns a Result<ResetReport>, and fills `to` unless it is NULL.
template <typename Reset>
int32_t reset_and_report(cairn_reset_report* to, cairn_error* error, Reset&& reset) noexcept {
  return guarded(error, [&]() -> Status {
    if (to != nullptr) {
      CAIRN_TRY(read_struct(to, "report"));  // before anything is reset
    }
    CAIRN_TRY_ASSIGN(const ResetReport done, reset());
    if (to == nullptr) {
      return {};
    }
    cairn_reset_report out{};
    out.reset = done.reset;
    out.in_use = done.in_use;
    out.copies = done.copies;
    out.loads = done.loads;
    return write_struct(to, out, "report");
  });
}

}  // namespace cairn::capi
