#include "cairn/wire/leader_id.h"

#include <chrono>
#include <span>

#include "cairn/hash/secret_bytes.h"

namespace cairn {

LeaderId make_leader_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  LeaderId id{.started = static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count())};
  internal::fill_random(std::as_writable_bytes(std::span(&id.random, 1)));
  return id;
}

}  // namespace cairn
