// RequestHandle: names a request of one SchedulerConnector, faster than its id does. Never used again.
#pragma once

#include <cstdint>

namespace cairn {

enum class RequestHandle : std::uint64_t {};

}  // namespace cairn
