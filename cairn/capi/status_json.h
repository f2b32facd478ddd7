// A manager's status as JSON, for programs that see it through the C interface. Internal.
#pragma once

#include <string>

#include "cairn/manager/manager_status.h"

namespace cairn::capi {

[[nodiscard]] std::string status_as_json(const ManagerStatus& status);

}  // namespace cairn::capi
