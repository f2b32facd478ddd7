// What every function of the C interface does at its boundary: errors become codes, structs of other sizes are read as far
// as they go, and nothing is thrown through it. Internal.
//
// Threads:  pure.
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
#include <vector>

#include "cairn/base/clock.h"
#include "cairn/base/deadline.h"
#include "cairn/base/result.h"
#include "cairn/capi/cairn.h"
#include "cairn/connector/request_id.h"
#include "cairn/manager/kv_block_manager.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/mm_run.h"

namespace cairn::capi {

[[nodiscard]] int32_t code_of(ErrorCode code);

// Writes what fits into the caller's struct; gives the code.
int32_t report(cairn_error* error, int32_t code, std::string_view message);
inline int32_t report(cairn_error* error, const Error& what) { return report(error, code_of(what.code), what.message); }
// Of a Result: CAIRN_OK, or its error.
template <typename R>
int32_t outcome(const R& result, cairn_error* error) {
  return result.has_value() ? static_cast<int32_t>(CAIRN_OK) : report(error, result.error());
}

// Copies a struct of the caller's, whatever version it is of; what it does not have is zero.
template <typename T>
[[nodiscard]] Result<T> read_struct(const T* from, const char* name) {
  if (from == nullptr || from->struct_size < sizeof(std::size_t)) {
    return fail(ErrorCode::kInvalidArgument,
                std::string(name) + (from == nullptr ? " is NULL" : " has no struct_size; begin it with CAIRN_INIT"));
  }
  T to{};
  std::memcpy(&to, from, std::min(from->struct_size, sizeof(T)));
  return to;
}
// The other way round: what the caller's struct has no room for is left out.
template <typename T>
[[nodiscard]] Status write_struct(T* to, T from, const char* name) {
  if (to == nullptr || to->struct_size < sizeof(std::size_t)) {
    return fail(ErrorCode::kInvalidArgument,
                std::string(name) + (to == nullptr ? " is NULL" : " has no struct_size; begin it with CAIRN_INIT"));
  }
  from.struct_size = to->struct_size;
  std::memcpy(to, &from, std::min(to->struct_size, sizeof(T)));
  return {};
}

// Fails for an array of which only the size is given.
template <typename T>
[[nodiscard]] Result<std::span<const T>> read_array(const T* from, std::size_t count, const char* name) {
  if (from == nullptr && count != 0) {
    return fail(ErrorCode::kInvalidArgument, std::string(name) + " is NULL and has a count above 0");
  }
  return std::span<const T>(from, count);
}
// The elements of an array of structs, all as large as the first says.
template <typename T>
[[nodiscard]] Result<std::vector<T>> read_structs(const T* first, std::size_t count, const char* name) {
  std::vector<T> all;
  if (count != 0 && first == nullptr) {
    return fail(ErrorCode::kInvalidArgument, std::string(name) + " is NULL and has a count above 0");
  }
  all.reserve(count);
  const auto* bytes = reinterpret_cast<const std::byte*>(first);
  for (std::size_t i = 0; i < count; ++i) {
    Result<T> read = read_struct(reinterpret_cast<const T*>(bytes + i * first->struct_size), name);
    if (!read) {
      return Unexpected(std::move(read).error());
    }
    all.push_back(*read);
  }
  return all;
}
// A cairn_prompt as the library takes it.
struct Prompt {
  std::span<const Token> tokens;
  RequestSalt salt;  // texts that are good during the call
  std::vector<MmRun> mm_runs;
};
[[nodiscard]] Result<Prompt> read_prompt(const cairn_prompt* prompt);
[[nodiscard]] Result<std::vector<MmRun>> read_mm_runs(const cairn_mm_run* first, std::size_t count);
[[nodiscard]] Result<std::vector<BlockKey>> read_keys(const cairn_key* keys, std::size_t count);
[[nodiscard]] inline std::string read_text(const char* text) { return text == nullptr ? std::string() : text; }

// What was given in milliseconds, however many; 0: the default stays.
inline void set_limit(Duration& limit, std::uint64_t given_ms) {
  if (given_ms != 0) {
    limit = limited_ms(given_ms);
  }
}
// A request as its caller named it.
[[nodiscard]] inline std::string text_of(const RequestId& request) {
  return request.text() != nullptr ? *request.text() : request.to_string();
}

// As the header says of texts: copied as far as it goes, ended with a 0; gives the bytes copied.
std::size_t write_text(std::string_view text, char* buffer, std::size_t capacity, std::size_t* needed);

// Runs it and lets nothing through: memory that is not to be had is CAIRN_EXHAUSTED. Every function of the interface stands in
// one of the two, but for those that only read a number.
template <typename Function>
int32_t guarded(cairn_error* error, Function&& function) noexcept {
  try {
    return function();
  } catch (const std::bad_alloc&) {
    return report(error, CAIRN_EXHAUSTED, "out of memory; the call can be made again");
  } catch (const std::exception& thrown) {
    return report(error, CAIRN_EXHAUSTED, thrown.what());
  } catch (...) {
    return report(error, CAIRN_EXHAUSTED, "an unknown exception");
  }
}
// For functions that give no code: `otherwise` is what they give if there is no memory.
template <typename Value, typename Function>
Value guarded_or(Value otherwise, Function&& function) noexcept {
  try {
    return function();
  } catch (...) {
    return otherwise;
  }
}
// A text of the library's, as write_text(). No memory: 0, and *needed is 0 too, which no text is.
template <typename Function>
std::size_t guarded_text(char* buffer, std::size_t capacity, std::size_t* needed, Function&& text_of) noexcept {
  return guarded_or(std::size_t{0}, [&] {
    if (needed != nullptr) {
      *needed = 0;
    }
    return write_text(text_of(), buffer, capacity, needed);
  });
}

// Resets, and fills `to`, unless it is NULL.
template <typename Reset>
int32_t reset_and_report(cairn_reset_report* to, cairn_error* error, Reset&& reset) noexcept {
  return guarded(error, [&]() -> int32_t {
    if (to != nullptr) {
      if (const Result<cairn_reset_report> asked = read_struct(to, "report"); !asked) {
        return report(error, asked.error());  // before anything is reset
      }
    }
    const Result<ResetReport> done = reset();
    if (!done || to == nullptr) {
      return outcome(done, error);
    }
    cairn_reset_report out{};
    out.reset = done->reset;
    out.in_use = done->in_use;
    out.copies = done->copies;
    out.loads = done->loads;
    return outcome(write_struct(to, out, "report"), error);
  });
}

}  // namespace cairn::capi
